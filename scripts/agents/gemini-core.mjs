// @google/gemini-cli-core, the library that Gemini CLI is made of. It has no agent program: it starts
// the commands of its tools itself. 380 MB installed, so only `npm run test:agents` has it.
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { fetchTools } from '../fetch.mjs'
import { homes } from './list.mjs'

const PACKAGE = '@google/gemini-cli-core'
const VERSION = '0.61.0'
const folder = join(homes, `gemini-core-${VERSION}`)

export const GEMINI_CORE = 'gemini-core'
export const geminiCoreUrl = pathToFileURL(join(folder, 'node_modules', PACKAGE, 'dist', 'index.js')).href
export const fetchGeminiCore = () => fetchTools(folder, { [PACKAGE]: VERSION })
