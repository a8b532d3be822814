// Deno with the permissions that the package needs, and no others.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inProject } from '../project.mjs'
import { asModule, PRINTED } from './short-bot.mjs'

/** As documented in docs/toolchains.md. */
const PERMISSIONS = ['--allow-read', '--allow-env', '--allow-ffi', '--allow-sys']

export const runtimes = {
  deno: {
    packages: { deno: '2.9.6' },
    async check(project, tools) {
      writeFileSync(join(project, 'short.mjs'), asModule)
      const arch = process.arch === 'arm64' ? 'arm64-glibc' : 'x64-glibc'
      const deno = join(tools, '@deno', `${process.platform}-${arch}`, 'deno')
      const run = (permissions) =>
        inProject(project, deno, [
          'run',
          '--no-prompt',
          '--node-modules-dir=manual',
          ...permissions,
          'short.mjs',
        ])
      assert.equal(await run(PERMISSIONS), PRINTED)
      for (const left of PERMISSIONS)
        await assert.rejects(
          run(PERMISSIONS.filter((flag) => flag !== left)),
          /NotCapable|Requires|permission/i,
          left,
        )
      return `with ${PERMISSIONS.join(' ')}`
    },
  },
}
