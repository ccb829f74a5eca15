// Tests with a session each, which is ended and checked within the test.
'use strict';

/**
 * Returns an `it` whose tests `use` the result of `begin`. Its `end` runs the checks of every
 * session.
 */
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
