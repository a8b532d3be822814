// The launch options are declared once, in src/node/launch_options.rs.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { builtFolder } from '../../scripts/packages.mjs'
import { thisTarget } from '../../scripts/targets/list.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
const addon = createRequire(import.meta.url)(join(builtFolder(thisTarget()), 'spawn-owned.node'))
const names = addon.launchOptionNames()

const read = (...path) => readFileSync(join(root, ...path), 'utf8')

test('the addon reads the launch options in the order of their TypeScript type', () => {
  const [, fields] = /^export interface LaunchOptions \{\n([^}]+)\}/m.exec(read('native', 'binding.d.ts'))
  assert.deepEqual(
    [...fields.matchAll(/^ {2}(\w+)\??:/gm)].map(([, name]) => name),
    names,
  )
})

test('no other file lists the launch options to pass them on', () => {
  const rustName = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
  const passed = (name) => new RegExp(`\\b(?:options|settings)\\.(?:${name}|${rustName(name)})\\b`)
  const files = [
    ['src', 'node', 'mod.rs'],
    ...readdirSync(join(root, 'ts', 'native')).map((file) => ['ts', 'native', file]),
  ]
  for (const file of files) {
    const text = read(...file)
    const listed = names.filter((name) => passed(name).test(text))
    assert.deepEqual(listed, [], file.join('/'))
  }
})
