// `spawn-owned doctor`: what it finds, why that matters, and what to do about it.
import assert from 'node:assert/strict'
import { mkdtempSync, realpathSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as nodeTest from 'node:test'
import { freshRegistry } from '../support/bots.mjs'
import { cli, spawnOwnedCli as so } from '../support/cli.mjs'
import { withoutNamespace } from '../support/namespace.mjs'
import { describe, sources, test } from '../support/sources.mjs'
import { NO_SHELL, posixOnly, removeFolder } from '../support/system.mjs'

const { checkLimits, checkNode, checkNoexec, checkProc, checkWatchers, mountOf, parseMounts } =
  await sources('cli/system-checks')
const statuses = (checks) => checks.map(({ status }) => status)

describe('doctor decides', () => {
  test('that a version of Node is end-of-life from its last day on', () => {
    for (const [version, day, expected] of [
      ['20.20.2', '2026-04-29', []],
      ['20.20.2', '2026-04-30', ['warning']],
      ['22.1.0', '2026-11-18', []],
      ['22.1.0', '2027-05-01', ['warning']],
      ['24.0.0', '2026-11-18', []],
      ['25.0.0', '2026-11-18', ['warning']],
      ['26.0.0', '2026-11-18', []],
      ['99.0.0', '2026-11-18', []],
    ])
      assert.deepEqual(statuses(checkNode(version, Date.parse(day))), expected, `${version} ${day}`)
  })

  test('whether /proc can be used', () => {
    const mounted = (options) => parseMounts(`24 22 0:23 / /proc rw,nosuid - proc proc rw${options}`)
    for (const [facts, status, detail] of [
      [{ self: '7' }, 'ok', /this PID namespace/],
      [{ self: undefined }, 'failed', /not mounted/],
      [{ self: '4711' }, 'failed', /another PID namespace: this process is 7 here and 4711 there/],
      [{ self: '7', mounts: mounted(',hidepid=2') }, 'warning', /mounted with hidepid=2/],
      [{ self: '7', mounts: mounted(',gid=4,hidepid=invisible') }, 'warning', /hidepid=invisible/],
      [{ self: '7', mounts: mounted(',hidepid=0') }, 'ok', /this PID namespace/],
      [{ self: '7', mounts: mounted(',hidepid=2'), isRoot: true }, 'ok', /this PID namespace/],
    ]) {
      const check = checkProc({ pid: 7, isRoot: false, mounts: mounted(''), ...facts })
      assert.equal(check.status, status)
      assert.match(check.detail, detail)
      assert.equal(check.advice !== undefined, status !== 'ok')
    }
  })

  test('which mount a folder is on, and whether it is noexec', () => {
    const mounts = parseMounts(
      [
        '22 1 254:0 / / rw,relatime - ext4 /dev/vda rw',
        '30 22 0:30 / /tmp rw,noexec - tmpfs tmpfs rw',
        '31 30 0:31 / /tmp/with\\040space rw - tmpfs tmpfs rw',
        '32 22 0:32 / /twice rw,noexec - tmpfs tmpfs rw',
        '33 32 0:33 / /twice rw - tmpfs tmpfs rw',
        'nonsense',
      ].join('\n'),
    )
    const at = (path) => mountOf(path, mounts)?.path
    assert.deepEqual(['/a', '/tmp', '/tmp/a', '/tmpfile', '/tmp/with space/a'].map(at), [
      '/',
      '/tmp',
      '/tmp',
      '/',
      '/tmp/with space',
    ])
    assert.deepEqual(statuses(checkNoexec('package', '/tmp/a', mounts)), ['failed'])
    assert.deepEqual(statuses(checkNoexec('registry', '/tmp/a', mounts)), ['warning'])
    for (const folder of ['/a', '/tmpfile', '/tmp/with space/a', '/twice/a'])
      assert.deepEqual(checkNoexec('package', folder, mounts), [], folder)
  })

  test('which limits are too low', () => {
    for (const [files, processes, isRoot, expected] of [
      ['1024', '1024', false, []],
      ['1023', 'unlimited', false, ['open files']],
      [256, 100, false, ['open files', 'processes']],
      ['unlimited', '100', true, []],
    ]) {
      const limits = { open_files: { soft: files }, max_user_processes: { soft: processes } }
      assert.deepEqual(
        checkLimits(limits, isRoot).map(({ name }) => name),
        expected,
      )
    }
    assert.deepEqual(checkLimits({}, false), [])
  })

  test('whether file watchers see the registry', () => {
    for (const [path, ignored, expected] of [
      ['/p/data/registry.json', [], 1],
      ['/p/registry.json', [], 1],
      ['/q/data/registry.json', [], 0],
      ['/registry.json', [], 0],
      ['/p/node_modules/.cache/registry.json', [], 0],
      ['/p/data/registry.json', ['data/'], 0],
      ['/p/data/registry.json', ['./data/*'], 0],
      ['/p/a/data/registry.json', ['**/data/**'], 0],
      ['/p/data/registry.json', ['data/registry.json'], 0],
      ['/p/data/registry.json', ['dat', 'other/', '*', ''], 1],
    ])
      assert.equal(checkWatchers(path, '/p', ignored).length, expected, `${path} ${ignored}`)
  })
})

nodeTest.describe('doctor', { timeout: 60_000 }, () => {
  const { test } = nodeTest
  const found = async (answer, name) => (await answer).json().checks.find((check) => check.name === name)

  test('warns about a registry that file watchers see, until nodemon ignores it', async (t) => {
    const folder = realpathSync(mkdtempSync(join(tmpdir(), 'cli-doctor-')))
    t.after(() => removeFolder(folder))
    const doctor = () => so(join(folder, 'data', 'registry.json'), ['doctor', '--json'], { cwd: folder })
    const { status, advice } = await found(doctor(), 'watchers')
    assert.equal(status, 'warning')
    assert.match(advice, /nodemon: --ignore data\//)
    writeFileSync(join(folder, 'nodemon.json'), '{ "ignore": ["data/"] }')
    assert.equal(await found(doctor(), 'watchers'), undefined)
  })

  test('prints causes, and what to do below them', posixOnly(NO_SHELL), async () => {
    const line = `ulimit -n 200; exec '${process.execPath}' '${cli}' doctor`
    const { code, stdout } = await so(freshRegistry(), ['run', '--', 'sh', '-c', line])
    assert.equal(code, 0)
    assert.match(stdout, /^!! {2}open files +A process can open 200 files at most \(RLIMIT_NOFILE\)/m)
    assert.match(stdout, /^ +What to do: Raise it to 1024 or more: ulimit -n/m)
  })

  test('fails if /proc shows another PID namespace', { skip: withoutNamespace }, async () => {
    const inside = ['unshare', '--pid', '--fork', '--kill-child', process.execPath, cli, 'doctor', '--json']
    const answer = await so(freshRegistry(), ['run', '--', ...inside])
    assert.equal(answer.code, 1)
    const { status, detail } = await found(answer, '/proc')
    assert.equal(status, 'failed')
    assert.match(detail, /another PID namespace/)
    assert.equal((await found(answer, 'trial')).status, 'failed')
  })

  test('explains a package and a registry on a noexec mount', { skip: withoutNamespace }, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'cli-doctor-'))
    t.after(() => removeFolder(folder))
    const script = `mount -t tmpfs -o noexec tmpfs '${folder}'
      cp -r '${join(cli, '..')}' '${folder}/dist' && cp '${join(cli, '../../package.json')}' '${folder}'
      '${process.execPath}' '${folder}/dist/cli.js' doctor --json; echo
      '${process.execPath}' '${cli}' doctor --json --registry '${folder}/data/registry.json'`
    const { lines } = await so(freshRegistry(), ['run', '--', 'unshare', '--mount', 'sh', '-c', script])
    const [ofPackage, ofRegistry] = lines()
      .filter(Boolean)
      .map((line) => JSON.parse(line))
    const noexec = ({ checks }) => checks.find(({ name }) => name === 'noexec')
    assert.deepEqual([ofPackage.ok, noexec(ofPackage).status], [false, 'failed'])
    assert.match(noexec(ofPackage).advice, /mount -o remount,exec/)
    assert.deepEqual([ofRegistry.ok, noexec(ofRegistry).status], [true, 'warning'])
  })
})
