// How to start a command with each library, as its documentation says.
const withExeca = ({ execa }, file, args) => execa(file, args)
const libraries = {
  execa: withExeca,
  'execa-9': withExeca,
  'cross-spawn': ({ default: imported, spawn }, file, args) => (imported ?? spawn)(file, args),
  tinyexec: ({ x }, file, args) => x(file, args),
  zx: ({ $ }, file, args) => $`${file} ${args}`,
}

/** The bot does not wait for the end of the command: the test kills the bot. */
exports.startWith = (name, library, file, args) => {
  Promise.resolve(libraries[name](library, file, args)).catch(() => {})
}
