/** Links to crashes, and following them. */

/** A link to a crash, as a page of crashes has it. */
export function link(value) {
  const encoded = Buffer.from(JSON.stringify({ v: 1, ...value })).toString('base64url');
  return `code-oss://backtrail.backtrail/open?j=${encoded}`;
}

/** Follows a link, as the system hands it to VS Code. */
export async function follow(bench, address) {
  await bench.command('Developer: Open URL');
  await bench.answer(address);
  // VS Code itself asks whether the extension may have it.
  await bench.dialog('Open', "Allow 'Backtrail' extension");
}
