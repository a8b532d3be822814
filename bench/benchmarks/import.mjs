/** The cost of having the package: time to import it in a fresh process, and bytes on disk. */

import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { INSTALLED_SIZE } from '../../scripts/targets/list.mjs'
import { sum } from '../lib/proc.mjs'
import { median } from '../lib/stats.mjs'
import { availableSubjects, EXECA } from '../lib/subjects.mjs'
import { absoluteRow } from '../report/rows.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
const NODE_PTY_MB = 64

export const name = 'import'

export async function bench({ quick }) {
  return [...(await importRows(quick ? 8 : 25)), sizeRow()]
}

async function importRows(rounds) {
  const directory = mkdtempSync(join(tmpdir(), 'spawn-owned-bench-'))
  try {
    const empty = join(directory, 'empty.mjs')
    writeFileSync(empty, 'export {}\n')
    const execa = (await availableSubjects([EXECA])).includes(EXECA)
    const ways = {
      import: "await import('spawn-owned')",
      require: "module.createRequire(process.cwd() + '/x.js')('spawn-owned')",
      empty: `await import(${JSON.stringify(empty)})`,
      ...(execa && { execa: "await import('execa')" }),
    }
    const samples = Object.fromEntries(Object.keys(ways).map((way) => [way, []]))
    for (let round = 0; round <= rounds; round++) {
      for (const way of Object.keys(ways)) {
        const ms = timeInFreshProcess(ways[way])
        // The first round fills the page cache.
        if (round > 0) samples[way].push(ms)
      }
    }
    return [
      absoluteRow({
        bench: name,
        what: "import 'spawn-owned' in a fresh process",
        target: { atMost: 12 },
        value: median(samples.import),
        unit: 'ms',
        samples: samples.import,
        others: {
          "require('spawn-owned')": median(samples.require),
          'an empty module': median(samples.empty),
          ...(execa && { execa: median(samples.execa) }),
        },
      }),
    ]
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

function timeInFreshProcess(statement) {
  const script = `
    import module from 'node:module'
    const before = performance.now()
    ${statement}
    console.log(performance.now() - before)`
  const output = execFileSync(process.execPath, ['--input-type=module', '--eval', script], { cwd: root })
  return Number(output)
}

/**
 * The size of the package as npm packs it, plus that of one platform. Uses the output of `npm run
 * build:targets`, which is what is published, or the larger build for this machine.
 */
function sizeRow() {
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const packed = JSON.parse(
    execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
      cwd: root,
      stdio: ['ignore', 'pipe', 'ignore'],
    }),
  )[0]
  const platform = `linux-${process.arch}-gnu`
  const published = join(root, 'native', platform)
  const folder = existsSync(published) ? published : join(root, 'native')
  const binaries = ['spawn-owned.node', 'spawn-owned-keeper'].map((file) => ({
    file,
    bytes: statSync(join(folder, file)).size,
  }))
  const described = ['package.json', 'README.md'].map(
    (file) => statSync(join(root, 'npm', platform, file)).size,
  )
  const bytes = packed.unpackedSize + sum([...described, ...binaries.map(({ bytes }) => bytes)])
  const clean = Object.keys(manifest.dependencies ?? {}).length === 0 && !hasInstallScript(manifest)
  const parts = [
    folder === published ? 'as published' : 'as built for this machine',
    `package ${kb(packed.unpackedSize)}`,
    ...binaries.map(({ file, bytes }) => `${file} ${kb(bytes)}`),
    clean ? 'no install scripts, no runtime dependencies' : 'HAS install scripts or runtime dependencies',
  ]
  return absoluteRow({
    bench: name,
    what: 'installed size on one platform',
    against: 'node-pty',
    target: { atMost: INSTALLED_SIZE / 1e6, also: clean },
    value: bytes / 1e6,
    unit: 'MB',
    others: { 'node-pty': NODE_PTY_MB },
    note: parts.join(', '),
  })
}

function hasInstallScript({ scripts = {} }) {
  return ['preinstall', 'install', 'postinstall'].some((script) => script in scripts)
}

function kb(bytes) {
  return `${Math.round(bytes / 1000)} kB`
}
