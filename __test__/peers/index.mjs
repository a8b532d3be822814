/** A package of this folder, by its name: `const { execa } = await importPeer('execa')`. */
export function importPeer(name) {
  return import(name)
}
