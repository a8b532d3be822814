// `npm run test:agents`: the real agents that bots run, as owned runs, and the library of Gemini CLI.
// They are fetched once into target/agents: 500 MB for all, 1.5 GB unpacked. That is too much for CI.
// `npm run test:agents -- gemini` runs one of them.
import { fetchPackage } from '../fetch.mjs'
import { root, run } from '../tools.mjs'
import { fetchGeminiCore, GEMINI_CORE } from './gemini-core.mjs'
import { agents } from './list.mjs'

if (process.platform !== 'linux') {
  console.log('agents are left out: the tests need Linux and its /proc')
  process.exit()
}

const names = [...agents.map(({ name }) => name), GEMINI_CORE]
const asked = process.argv.slice(2)
const unknown = asked.filter((name) => !names.includes(name))
if (unknown.length > 0) {
  console.error(`unknown agent ${unknown.join(', ')}. The agents are: ${names.join(', ')}`)
  process.exit(1)
}

const wanted = names.filter((name) => asked.length === 0 || asked.includes(name))
for (const { name, spec, place } of agents) {
  if (!wanted.includes(name)) continue
  const why = fetchPackage(spec, place)
  if (why) console.log(`${name} is left out: ${why}`)
}
if (wanted.includes(GEMINI_CORE)) fetchGeminiCore()
const files = ['agents', 'gemini-core'].map((name) => `scripts/agents/${name}.test.mjs`)
run(process.execPath, ['--test', '--test-concurrency=1', '--test-reporter=spec', ...files], {
  env: { ...process.env, AGENTS: wanted.join() },
  cwd: root,
})
