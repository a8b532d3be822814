// Behaviour of child_process that exists only on Windows: spawnOwned does the same.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { facts, output, run, same, spawnOwned } from '../fixtures/side-by-side.mjs'

const skip =
  process.platform !== 'win32' &&
  'this is not Windows; what can be compared here is in windows-rules.test.mjs'
const dir = mkdtempSync(join(tmpdir(), 'windows-'))
after(() => rmSync(dir, { recursive: true, force: true, maxRetries: 10 }))

const node = process.execPath
const argv = ['-e', 'process.stdout.write(JSON.stringify(process.argv.slice(1)))', '--']
const fails = (start, ...args) => run(start, ...args).then(({ thrown, log }) => thrown ?? log)

describe('spawnOwned does the same as child_process:', { skip }, () => {
  same('arguments arrive as they were given', async (start) => {
    const args = [
      '',
      'a b',
      'tab\there',
      '"',
      'a"b',
      '\\',
      'a b\\',
      'a\\\\"b',
      "'",
      '%PATH%',
      '^&|<>',
      'é 𝄞',
      '*',
      '--x=y z',
    ]
    const seen = JSON.parse(await output(start, node, [...argv, ...args]))
    assert.deepEqual(seen, args)
    return seen
  })

  same('windowsVerbatimArguments joins the arguments to one command line', (start) =>
    output(start, node, ['-p', '"1', '+', '1"'], { windowsVerbatimArguments: true }),
  )

  for (const shell of [true, 'cmd', 'cmd.exe', process.env.comspec ?? 'cmd.exe']) {
    same(`the shell ${shell} runs a command line`, (start) =>
      output(start, 'echo "a  b" & echo %A%', { shell, env: { A: '1' } }),
    )
  }

  same('a batch file needs a shell', async (start) => {
    writeFileSync(join(dir, 'a.bat'), '@echo from a batch file\r\n')
    const seen = []
    for (const name of ['a.bat', 'a.BAT', 'a.bat ', 'a.bat.', 'nothing.cmd', 'nothing.cmd ...']) {
      seen.push(await fails(start, join(dir, name)), await fails(start, name, { cwd: dir, uid: 0 }))
    }
    seen.push(await output(start, join(dir, 'a.bat'), { shell: true }))
    assert.ok(seen.slice(0, -1).every(({ code }) => code === 'EINVAL'))
    return seen
  })

  same('uid and gid are refused', async (start) => {
    const seen = [await fails(start, node, { uid: 0 }), await fails(start, node, { gid: 1 })]
    assert.ok(seen.every(({ code }) => code === 'ENOTSUP'))
    return seen
  })

  same('a program or folder that does not exist causes the same error', async (start) => {
    const calls = [
      ['nothing'],
      ['nothing.exe'],
      ['.\\nothing'],
      [dir],
      ['.'],
      [node, { cwd: join(dir, 'nothing') }],
    ]
    const seen = []
    for (const args of calls) seen.push(await fails(start, ...args))
    return seen
  })

  same('descriptors that are not open cause the same error', async (start) => {
    const seen = []
    for (const form of [-1, -2, 9999, { fd: -1 }, { fd: -2 }, { fd: 9999 }]) {
      for (const stdio of [
        ['ignore', form],
        ['ignore', 'ignore', 'ignore', form],
      ]) {
        const fd = stdio.length - 1
        const program = `try { fs.writeSync(${fd}, 'x') } catch (error) { process.exitCode = -error.errno % 256 }`
        seen.push(await fails(start, node, ['-e', program], { stdio }))
      }
    }
    return seen
  })

  same('a program is searched in the same folders', async (start) => {
    const bin = join(dir, 'with; semicolon')
    mkdirSync(bin, { recursive: true })
    copyFileSync(node, join(bin, 'found.exe'))
    const one = ['-p', '1']
    const seen = []
    for (const [file, options] of [
      ['found', { cwd: bin }],
      ['found.exe', { cwd: bin }],
      ['.\\found', { cwd: bin }],
      ['with; semicolon\\found', { cwd: dir }],
      ['found', { env: { Path: `C:\\nowhere;"${bin}"` } }],
      ['found', { env: { PATH: `"${bin}"`, Path: 'C:\\nowhere' } }],
      ['found', { cwd: dir, env: { PATH: '"with; semicolon"' } }],
      ['found', { env: { PATH: 'C:\\nowhere' } }],
      [join(bin, 'found').slice(2), { cwd: bin }],
    ]) {
      seen.push(await run(start, file, one, options))
    }
    assert.deepEqual(
      seen.map(({ stdout }) => stdout),
      ['1\n', '1\n', '1\n', '1\n', '1\n', '1\n', '1\n', '', '1\n'],
    )
    return seen
  })

  same('the command gets the same environment', async (start) => {
    const env = { b: '1', B: '2', Zed: 'é', EMPTY: '', SystemRoot: process.env.SystemRoot }
    const program = 'process.stdout.write(JSON.stringify(process.env))'
    const seen = JSON.parse(await output(start, node, ['-e', program], { env }))
    // The command of spawnOwned has one more variable: the cookie.
    const names = Object.keys(seen).filter((name) => name !== 'SPAWN_OWNED_RUN')
    return names.map((name) => [name, seen[name]])
  })

  for (const signal of Object.keys(constants.signals)) {
    // Older versions of Node end a process by SIGWINCH.
    if (signal === 'SIGWINCH') continue
    same(`kill('${signal}') has the same effect`, async (start) => {
      const child = start(node, ['-e', 'setInterval(() => {}, 1e6)'])
      await once(child, 'spawn')
      const { killed } = child
      const answer = child.kill(signal)
      return [killed, answer, child.killed, await once(child, 'exit'), child.kill(signal), child.kill(0)]
    })
  }

  same('a signal that Windows does not have causes the same error', (start) => {
    const child = start(node, ['-e', 'setInterval(() => {}, 1e6)'])
    const seen = []
    for (const signal of ['SIGSTOP', 'SIGUSR1', 999]) {
      try {
        child.kill(signal)
      } catch (error) {
        seen.push(facts(error))
      }
    }
    seen.push(child.kill(0), child.killed)
    child.kill()
    return once(child, 'exit').then((exit) => [...seen, exit])
  })
})

test("kill('SIGWINCH') is refused and does not end the process", { skip, timeout: 20_000 }, async () => {
  const child = spawnOwned(node, ['-e', 'setInterval(() => {}, 1e6)'])
  await once(child, 'spawn')
  assert.throws(() => child.kill('SIGWINCH'), { code: 'ENOSYS', syscall: 'kill' })
  assert.equal(child.killed, false)
  assert.equal(child.kill(0), true)
  child.kill()
  assert.deepEqual(await once(child, 'exit'), [null, 'SIGTERM'])
})
