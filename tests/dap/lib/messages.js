// Checks every message, in both directions, against the protocol's schema and its rules of
// numbering.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const Ajv = require('ajv');
const own = require('./own');

const SCHEMA = path.join(__dirname, '../../../dap-adapter/protocol/debugProtocol.json');

const ajv = new Ajv({ strict: false, allErrors: true });
ajv.addSchema(JSON.parse(fs.readFileSync(SCHEMA)), 'dap');
ajv.addSchema(own.schema, 'own');

const validators = new Map();

/** Returns the errors of a value by a definition of a schema. */
function faults(schema, definition, value) {
  const reference = `${schema}#/definitions/${definition}`;
  if (!validators.has(reference)) {
    validators.set(reference, ajv.getSchema(reference));
  }
  const validate = validators.get(reference);
  if (!validate) {
    return [`the schema has no ${definition}`];
  }
  return validate(value) ? [] : validate.errors.map((error) => `${definition}${error.instancePath}: ${error.message}`);
}

const capital = (name) => name[0].toUpperCase() + name.slice(1);

/** Checks a message by the protocol's schema and by the schema of our extensions. */
function faultsOfMessage(message) {
  const { type, command, event } = message;
  if (type === 'request') {
    return command in own.requests || command.startsWith('backtrail/')
      ? faults('dap', 'Request', message)
      : faults('dap', `${capital(command)}Request`, message);
  }
  if (type === 'event') {
    if (event in own.events) {
      return [...faults('dap', 'Event', message), ...faults('own', own.events[event], message.body)];
    }
    return faults('dap', `${capital(event)}Event`, message);
  }
  if (type !== 'response') {
    return [`neither request nor response nor event: ${type}`];
  }
  if (!message.success) {
    return faults('dap', 'ErrorResponse', message);
  }
  if (command in own.requests) {
    // An empty body may be omitted.
    return [...faults('dap', 'Response', message), ...faults('own', own.requests[command], message.body ?? {})];
  }
  return faults('dap', `${capital(command)}Response`, message);
}

/** One conversation. */
class Checker {
  constructor() {
    this.faults = [];
    this.open = new Map();
    this.lastSeq = 0;
  }

  /**
   * Notes our request. `valid`: the protocol defines the request, so an error in it is an error of
   * the test.
   */
  sent(message, valid = true) {
    this.open.set(message.seq, message.command);
    if (valid) {
      this.note(faultsOfMessage(message), message);
    }
  }

  received(message) {
    const faults = faultsOfMessage(message);
    if (message.seq !== this.lastSeq + 1) {
      faults.push(`seq ${message.seq} after ${this.lastSeq}`);
    }
    this.lastSeq = message.seq;
    if (message.type === 'response') {
      const command = this.open.get(message.request_seq);
      this.open.delete(message.request_seq);
      if (command === undefined) {
        faults.push(`answers ${message.request_seq}, which was not asked or was answered before`);
      } else if (command !== message.command) {
        faults.push(`answers ${message.command}, was asked ${command}`);
      }
    }
    this.note(faults, message);
  }

  note(faults, message) {
    for (const fault of faults) {
      this.faults.push(`${fault} in ${JSON.stringify(message).slice(0, 2000)}`);
    }
  }
}

module.exports = { Checker, faultsOfMessage };
