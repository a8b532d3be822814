// A real browser, Debian's Chromium without a window: a dozen processes. Two of them (its crash
// handlers) have left session, group and parent before an observer sees them.
import assert from 'node:assert/strict'
import { accessSync, constants, existsSync, mkdtempSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { until } from './bots.mjs'
import { script } from './fixtures.mjs'
import { assertNoProcessNames, endWhoNames, whoNames } from './onlooker.mjs'
import { isLinux, NO_PROC, removeFolder } from './system.mjs'

/** Its path, or `undefined` if it is not installed. */
export const browser = (process.env.PATH ?? '')
  .split(delimiter)
  .map((folder) => join(folder, 'chromium'))
  .find(isExecutable)

/** Why tests that need it are skipped, or false. */
export const withoutBrowser =
  (!isLinux && NO_PROC) || (!browser && 'needs Chromium (Debian: apt-get install chromium)')

/** On a busy machine it takes a while to start. */
const STANDS_MS = 60_000

const HEADLESS = [
  ...['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
  ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
]

const TITLE = 'owned'
const PAGE = `data:text/html,<title>${TITLE}</title>`

/** A new profile for the test `t` in its own home, which identifies its processes. */
export function openProfile(t) {
  const profile = new Profile()
  t.after(() => profile.remove())
  return profile
}

class Profile {
  #home = mkdtempSync(join(tmpdir(), 'browser-'))
  #data = join(this.#home, 'profile')
  #address = join(this.#data, 'DevToolsActivePort')

  /** It writes crash reports, sockets and files there. */
  env = {
    ...process.env,
    ...{ HOME: this.#home, TMPDIR: this.#home, XDG_CONFIG_HOME: this.#home, XDG_CACHE_HOME: this.#home },
  }

  /** The command that starts a browser with this profile and a page. */
  get command() {
    return this.#start('--remote-debugging-port=0')
  }

  /** The command that prints that page and exits. */
  get task() {
    return this.#start('--dump-dom')
  }

  processes() {
    return whoNames(this.#home)
  }

  /** Its helpers of this kind. */
  helpers(kind) {
    return this.processes().filter(({ line }) => line.includes(kind))
  }

  isListening() {
    return existsSync(this.#address)
  }

  /** Whether a renderer has loaded a page. */
  async hasPage() {
    if (!this.isListening()) return false
    const [port] = readFileSync(this.#address, 'utf8').split('\n')
    const pages = await fetch(`http://127.0.0.1:${port}/json/list`).then(
      (answer) => answer.json(),
      () => [],
    )
    return pages.some(({ title }) => title === TITLE)
  }

  assertUnused() {
    assertNoProcessNames(this.#home)
  }

  async remove() {
    await endWhoNames(this.#home)
    removeFolder(this.#home)
  }

  #start(what) {
    return [browser, ...HEADLESS, `--user-data-dir=${this.#data}`, what, PAGE]
  }
}

/** The stage at which the browser is ended. */
export const stages = {
  'at once': async () => {},
  'with its first helper': (profile) => reached(() => profile.helpers('--type=').length > 0),
  'when it can be connected to': (profile) => reached(() => profile.isListening()),
  'with a page': async (profile) => {
    await reached(() => profile.hasPage())
    for (const kind of ['--type=zygote', '--type=renderer', '--type=utility', 'crashpad_handler'])
      assert.ok(profile.helpers(kind).length > 0, `it has no ${kind}`)
  },
}

const reached = (isReached) => until(isReached, 'the browser has reached this stage', STANDS_MS)

const wrapped = (how) => (command) => [process.execPath, script('starts.mjs'), how, ...command]

/**
 * Ways to start it. All except the first exit at the end of their stdin at the latest; the browser
 * does not read it.
 */
export const starts = {
  directly: (command) => command,
  'by a shell': (command) => ['bash', '-c', '"$@" </dev/null & read -r _; exit 0', 'bash', ...command],
  'by a wrapper that leaves first': wrapped('leaves'),
  'by a launcher that detaches it': wrapped('detaches'),
}

function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}
