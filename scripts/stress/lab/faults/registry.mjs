/**
 * Somebody spoils the registry. What its bots have written is lost then: entries of living bots come back with their next change, those
 * of dead ones are only in the copy that is set aside. So runs from before are not looked for in it any more.
 */

import { appendFileSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { quietly } from '../witness.mjs'

const WAYS = {
  garbage: { words: 'writes garbage over the registry', text: () => '\u0000\u0001 no JSON at all' },
  half: { words: 'cuts the registry in half', text: (text) => text.slice(0, Math.floor(text.length / 2)) },
  empty: { words: 'empties the registry', text: () => '' },
}

export const registryFaults = [
  {
    name: 'spoil',
    weight: 0.7,
    draw: ({ dice }) => ({ way: dice.pick(Object.keys(WAYS)) }),
    tell: ({ way }) => `somebody ${WAYS[way].words}`,
    play(stage, { way }) {
      if (!existsSync(stage.registryPath)) return false
      const text = WAYS[way].text(readFileSync(stage.registryPath, 'utf8'))
      stage.losesRegistry()
      // On a full disk the file is empty then.
      quietly(() => writeFileSync(stage.registryPath, text))
      stage.vandalism = readFileSync(stage.registryPath, 'utf8')
    },
  },
  {
    name: 'delete',
    weight: 0.7,
    draw: ({ dice }) => ({ what: dice.pick(['file', 'files']) }),
    tell: ({ what }) =>
      `somebody deletes ${what === 'file' ? 'the registry' : 'everything beside the registry, and it'}`,
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
    tell: () => 'somebody dies while writing to the journal, and leaves half a line',
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
