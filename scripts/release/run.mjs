// `npm run release:dry`: everything a release does but the upload. Versions, changelog, what was built, and the packages as they would be
// published. What was not built here is named; it is in the workflow, which has all of it:
//   node scripts/release/run.mjs --tag v1.2.3             everything must be there, under the tag's version
//   node scripts/release/run.mjs --tag v1.2.3 --publish   and is uploaded, with provenance
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { pack, releaseFolder, stagePackage } from '../packages.mjs'
import { checkSize, megabytes } from '../targets/check.mjs'
import { inspect } from '../targets/inspect.mjs'
import { packageName, targets } from '../targets/list.mjs'
import { root, run } from '../tools.mjs'
import { checkChangelog, checkFiles, checkVersions } from './checks.mjs'

const { values } = parseArgs({
  options: { tag: { type: 'string' }, publish: { type: 'boolean', default: false } },
})
const { tag, publish } = values
if (publish && tag === undefined) refuse(['only a tag is published: --tag v1.2.3'])

const read = (...path) => readFileSync(join(root, ...path), 'utf8')
const main = JSON.parse(read('package.json'))
const BESIDES = ['LICENSE', 'README.md', 'package.json']
const parcels = join(root, 'target', 'release-packages')

checkSources()
rmSync(parcels, { recursive: true, force: true })
const mainPackage = packMain()
const platformPackages = targets.map(packPlatform).filter(Boolean)
// The main one last: whoever installs it must find the others. Yarn wants all of them.
for (const { tarball } of [...platformPackages, mainPackage]) upload(tarball)
console.log(publish ? `published ${main.version}` : `${main.version} can be published`)

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
  const packed = pack(root, parcels)
  refuse(checkFiles(packed.files, [...main.files, ...BESIDES]))
  console.log(`${main.name}: ${packed.files.length} files, ${megabytes(packed.unpackedSize)} MB`)
  return packed
}

/** Undefined if there is nothing to pack, which only a release minds. */
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
  // What is built for Windows here is for tests under Wine, what is built for macOS is to be looked at. Neither is made small.
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
  const how = publish ? ['--provenance'] : ['--dry-run']
  run('npm', ['publish', tarball, '--access', 'public', '--tag', channel, ...how], { quiet: !publish })
}

function refuse(complaints) {
  if (complaints.length === 0) return
  for (const complaint of complaints) console.error(complaint)
  process.exit(1)
}
