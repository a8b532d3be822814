/**
 * The registry is damaged. Its content is lost then: entries of live bots return with their next
 * change, those of dead bots exist only in the saved copy. So the lab no longer expects earlier
 * runs in it.
 */

import { appendFileSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { quietly } from '../witness.mjs'

const WAYS = {
  garbage: { words: 'garbage is written over the registry', text: () => '\u0000\u0001 no JSON at all' },
  half: { words: 'the registry is cut in half', text: (text) => text.slice(0, Math.floor(text.length / 2)) },
  empty: { words: 'the registry is emptied', text: () => '' },
}

export const registryFaults = [
  {
    name: 'spoil',
    weight: 0.7,
    draw: ({ dice }) => ({ way: dice.pick(Object.keys(WAYS)) }),
    describe: ({ way }) => WAYS[way].words,
    play(stage, { way }) {
      if (!existsSync(stage.registryPath)) return false
      const text = WAYS[way].text(readFileSync(stage.registryPath, 'utf8'))
      stage.losesRegistry()
      // On a full disk the file is now empty.
      quietly(() => writeFileSync(stage.registryPath, text))
      stage.registryReads.vandalism = readFileSync(stage.registryPath, 'utf8')
    },
  },
  {
    name: 'delete',
    weight: 0.7,
    draw: ({ dice }) => ({ what: dice.pick(['file', 'files']) }),
    describe: ({ what }) =>
      `${what === 'file' ? 'the registry is' : 'the registry and the files beside it are'} deleted`,
    play(stage, { what }) {
      stage.losesRegistry()
      const names = what === 'file' ? [''] : ['', '.journal', '.journal.old', '.lock', '.scopes']
      for (const name of names) rmSync(`${stage.registryPath}${name}`, { force: true })
    },
  },
  {
    name: 'tear',
    weight: 0.7,
    draw: () => ({}),
    describe: () => 'a write to the journal is interrupted, and leaves half a line',
    play(stage) {
      if (!existsSync(dirname(stage.registryPath))) return false
      const journal = `${stage.registryPath}.journal`
      quietly(() => {
        appendFileSync(journal, '\n653 {"intent":{"entry":{"pid":18', { mode: 0o600 })
        stage.give(journal)
      })
    },
  },
]
