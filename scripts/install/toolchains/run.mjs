// Compilers, bundlers, test runners, watchers and runtimes: each runs a bot with the installed package.
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fetchTools } from '../../fetch.mjs'
import { root, say } from '../../tools.mjs'
import { createProject, inProject } from '../project.mjs'
import { bundlers } from './bundlers.mjs'
import { compilers } from './compilers.mjs'
import { next } from './next.mjs'
import { runtimes } from './runtimes.mjs'
import { testRunners } from './test-runners.mjs'
import { watchers } from './watchers.mjs'

/**
 * By name: `packages`, the tools to fetch; `isShort`, whether CI runs it; `isInPlace`, whether the project
 * is below the folder of its tools, for tools that refuse links; `check(project, tools)`, which resolves
 * to what it has checked, in words.
 */
const toolchains = { ...compilers, ...bundlers, ...testRunners, ...watchers, ...runtimes, ...next }

/** `only`: names separated by commas. `all`: also those that take long. */
export async function runToolchains({ registry, versions, all, only }) {
  const names = only?.split(',') ?? Object.keys(toolchains).filter((name) => all || toolchains[name].isShort)
  for (const name of names) {
    if (!(name in toolchains))
      throw new Error(`there is no toolchain ${name}. There are: ${Object.keys(toolchains).join(', ')}`)
    say(`Checking ${name}`)
    const { packages, isInPlace, check } = toolchains[name]
    const folder = join(root, 'target', 'install', 'toolchains', name)
    if (packages) fetchTools(folder, packages)
    const tools = join(folder, 'node_modules')
    const outside = mkdtempSync(join(tmpdir(), 'toolchain-'))
    try {
      // The project finds its tools above, and the package in its own folder. It is not below the
      // checkout, where it would find our development dependencies too.
      if (packages) symlinkSync(tools, join(outside, 'node_modules'))
      const project = join(isInPlace ? folder : outside, 'project')
      rmSync(project, { recursive: true, force: true })
      createProject(project, registry, versions)
      await inProject(project, 'npm', ['install', '--ignore-scripts', '--no-audit', '--no-fund'])
      console.log(`install: ${name}: ${await check(project, tools)}`)
    } finally {
      await remove(outside)
    }
  }
}

/** A keeper that outlives its bot for a moment may still write to the registry in this folder. */
async function remove(folder, attempts = 100) {
  try {
    rmSync(folder, { recursive: true, force: true })
  } catch (error) {
    if (error.code !== 'ENOTEMPTY' || attempts === 1) throw error
    await delay(50)
    await remove(folder, attempts - 1)
  }
}
