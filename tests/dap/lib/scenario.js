// A test with a session of its own, which is ended and checked as a part of the test.
'use strict';

/** An `it` whose tests each `use` what `begin` makes; its `end` checks what is to be checked of every session. */
function scenarios(begin, use) {
  return (name, run) =>
    it(name, async function () {
      const session = await begin();
      use(session);
      try {
        await run.call(this);
        await session.end();
      } finally {
        session.kill();
      }
    });
}

module.exports = { scenarios };
