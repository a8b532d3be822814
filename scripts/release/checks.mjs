// What must hold before a release. Pure: facts in, complaints out.

/**
 * main       package.json
 * lock       package-lock.json
 * crates     the versions of the crate in Cargo.toml and Cargo.lock
 * platforms  the manifests in npm/
 * tag        the tag of the release, or undefined
 */
export function checkVersions({ main, lock, crates, platforms, tag }) {
  const { version, optionalDependencies = {} } = main
  const found = [
    ...crates.map((crate) => [crate.file, crate.version]),
    ['package-lock.json', lock.version],
    ...platforms.map((platform) => [`npm: ${platform.name}`, platform.version]),
    ...Object.entries(optionalDependencies).map(([name, wanted]) => [
      `optionalDependencies: ${name}`,
      wanted,
    ]),
    ...(tag === undefined ? [] : [['the tag', tag.replace(/^v/, '')]]),
  ]
  const complaints = found
    .filter(([, other]) => other !== version)
    .map(([where, other]) => `${where} is ${other}, and package.json is ${version}`)
  const names = platforms.map(({ name }) => name)
  const unlisted = names.filter((name) => !(name in optionalDependencies))
  const unknown = Object.keys(optionalDependencies).filter((name) => !names.includes(name))
  return [
    ...complaints,
    ...unlisted.map((name) => `${name} is not among the optionalDependencies`),
    ...unknown.map((name) => `${name} is among the optionalDependencies, and there is no such package`),
  ]
}

/**
 * With a tag, the changes must be in a section with its version and a date. Before, they may be
 * under "Unreleased".
 */
export function checkChangelog(text, version, tag) {
  const sections = text.split(/^## /m).slice(1)
  const named = (name) => sections.find((section) => section.startsWith(`[${name}]`))
  const released = named(version)
  const isEmpty = (section) => section.split('\n').slice(1).join('').trim() === ''
  if (released !== undefined) {
    const dated = /^\[[^\]]+\] - \d{4}-\d{2}-\d{2}$/m.test(released.split('\n')[0])
    return [
      !dated && `CHANGELOG.md does not say when ${version} was released (## [${version}] - YYYY-MM-DD)`,
      isEmpty(released) && `CHANGELOG.md says nothing of ${version}`,
    ].filter(Boolean)
  }
  if (tag !== undefined) return [`CHANGELOG.md has no section for ${version}`]
  const pending = named('Unreleased')
  return pending === undefined || isEmpty(pending) ? [`CHANGELOG.md says nothing of ${version}`] : []
}

/** `expected`: paths, or folders with any content. `executable`: paths that must be executable. */
export function checkFiles(files, expected, executable = []) {
  const paths = files.map(({ path }) => path)
  const covers = (entry, path) => path === entry || path.startsWith(`${entry}/`)
  const missing = expected.filter((entry) => !paths.some((path) => covers(entry, path)))
  const extra = paths.filter((path) => !expected.some((entry) => covers(entry, path)))
  const unfit = files.filter(({ path, mode }) => executable.includes(path) && (mode & 0o111) !== 0o111)
  return [
    ...missing.map((path) => `${path} is missing`),
    ...extra.map((path) => `${path} should not be in it`),
    ...unfit.map(({ path }) => `${path} is not executable`),
  ]
}
