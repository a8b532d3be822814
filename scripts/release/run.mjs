// `npm run release:dry`: everything a release does except the upload: checks versions, changelog,
// builds and packages, and names missing builds. The workflow has all builds:
//   node scripts/release/run.mjs --tag v1.2.3             all builds must exist
//   node scripts/release/run.mjs --tag v1.2.3 --stage     and are staged, with provenance: a
//                                                         maintainer approves them, which publishes
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { pack, publishedManifest, releaseFolder, stageMain, stagePackage } from '../packages.mjs'
import { checkSize, megabytes } from '../targets/check.mjs'
import { inspect } from '../targets/inspect.mjs'
import { packageName, targets } from '../targets/list.mjs'
import { root, run } from '../tools.mjs'
import { checkChangelog, checkFiles, checkVersions } from './checks.mjs'

const { values } = parseArgs({
  options: { tag: { type: 'string' }, stage: { type: 'boolean', default: false } },
})
const { tag, stage } = values
if (stage && tag === undefined) refuse(['--stage needs a tag, e.g. --tag v1.2.3'])

const read = (...path) => readFileSync(join(root, ...path), 'utf8')
const main = publishedManifest()
const BESIDES = ['LICENSE', 'README.md', 'package.json']
const parcels = join(root, 'target', 'release-packages')

checkSources()
rmSync(parcels, { recursive: true, force: true })
const mainPackage = packMain()
const platformPackages = targets.map(packPlatform).filter(Boolean)
// The main package last: it depends on the others. Yarn needs all of them.
for (const { tarball } of [...platformPackages, mainPackage]) upload(tarball)
console.log(
  stage
    ? `staged ${main.version}. Approve the platform packages first: npm stage list, npm stage approve <id>`
    : `${main.version} can be published`,
)

function checkSources() {
  const platforms = readdirSync(join(root, 'npm')).filter((name) => name !== 'README.md')
  const version = /^name = "spawn-owned"\nversion = "([^"]+)"/m
  const crates = ['Cargo.toml', 'Cargo.lock'].map((file) => ({
    file,
    version: version.exec(read(file))?.[1],
  }))
  const facts = { main, lock: JSON.parse(read('package-lock.json')), crates, tag }
  const manifests = platforms.map((name) => JSON.parse(read('npm', name, 'package.json')))
  refuse([
    ...checkVersions({ ...facts, platforms: manifests }),
    ...checkChangelog(read('CHANGELOG.md'), main.version, tag),
  ])
  console.log(`versions and changelog: ${main.version}`)
}

function packMain() {
  const packed = pack(stageMain(join(parcels, 'folders')), parcels)
  refuse(checkFiles(packed.files, [...main.files, ...BESIDES]))
  console.log(`${main.name}: ${packed.files.length} files, ${megabytes(packed.unpackedSize)} MB`)
  return packed
}

/** Undefined if the target was not built. A release refuses that. */
function packPlatform(target) {
  const from = releaseFolder(target)
  if (from === undefined) {
    if (tag !== undefined) refuse([`${target.platform} was not built`])
    console.log(`${packageName(target)}: not built here`)
    return undefined
  }
  const built = target.os === 'linux' ? inspect(target, from) : { summary: 'as built', complaints: [] }
  const packed = pack(stagePackage(target, from, join(parcels, 'folders')), parcels)
  const installed = mainPackage.unpackedSize + packed.unpackedSize
  const tooLarge = checkSize(installed)
  // Local builds for Windows and macOS are for tests and inspection. Their size is not optimized.
  const forTests = target.os !== 'linux' && tag === undefined
  const complaints = [
    ...built.complaints,
    ...checkFiles(packed.files, [...target.files, ...BESIDES], target.files),
    ...(forTests ? [] : tooLarge),
  ]
  refuse(complaints.map((complaint) => `${target.platform}: ${complaint}`))
  const note = forTests && tooLarge.length > 0 ? ', a build for tests' : ''
  console.log(`${packageName(target)}: ${built.summary}; ${megabytes(installed)} MB installed${note}`)
  return packed
}

function upload(tarball) {
  const channel = main.version.includes('-') ? 'next' : 'latest'
  const how = stage ? ['stage', 'publish', tarball, '--provenance'] : ['publish', tarball, '--dry-run']
  run('npm', [...how, '--access', 'public', '--tag', channel], { quiet: !stage })
}

function refuse(complaints) {
  if (complaints.length === 0) return
  for (const complaint of complaints) console.error(complaint)
  process.exit(1)
}
