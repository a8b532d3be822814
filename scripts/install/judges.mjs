// Other tools check the package: publint its manifest, attw its types.
import { readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { pathToFileURL } from 'node:url'
import { inspect } from 'node:util'
import { inProject } from './project.mjs'
import { attw, publint } from './tools.mjs'

export async function judge(tarball) {
  const { publint: lint } = await import(pathToFileURL(publint))
  const { messages } = await lint({
    pack: { tarball: new Uint8Array(readFileSync(tarball)).buffer },
    strict: true,
  })
  if (messages.length > 0) throw new Error(`publint: ${inspect(messages, { depth: 5 })}`)
  console.log('install: publint: no complaints')
  await inProject(dirname(tarball), process.execPath, [attw, tarball, '--no-color', '--no-emoji'])
  console.log('install: attw: no complaints')
}
