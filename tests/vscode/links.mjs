/** Opens links to crashes. */

/** Returns a link to a crash, as on a page of crashes. */
export function link(value) {
  const encoded = Buffer.from(JSON.stringify({ v: 1, ...value })).toString('base64url');
  return `code-oss://backtrail.backtrail/open?j=${encoded}`;
}

/** Opens a link, as the system passes it to VS Code. */
export async function follow(bench, address) {
  await bench.command('Developer: Open URL');
  await bench.answer(address);
  // VS Code asks whether the extension may open it.
  await bench.dialog('Open', "Allow 'Backtrail' extension");
}
