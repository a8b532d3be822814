// `npm run test:agents`: the real agents that bots run, as owned runs. They are fetched once into
// target/agents: 420 MB for all, 1.1 GB unpacked. That is too much for CI. `npm run test:agents --
// gemini` runs one of them.
import { fetchPackage } from '../fetch.mjs'
import { root, run } from '../tools.mjs'
import { agents } from './list.mjs'

if (process.platform !== 'linux') {
  console.log('agents are left out: the tests need Linux and its /proc')
  process.exit()
}

const asked = process.argv.slice(2)
const unknown = asked.filter((name) => !agents.some((agent) => agent.name === name))
if (unknown.length > 0) {
  console.error(
    `unknown agent ${unknown.join(', ')}. The agents are: ${agents.map(({ name }) => name).join(', ')}`,
  )
  process.exit(1)
}

const wanted = agents.filter(({ name }) => asked.length === 0 || asked.includes(name))
for (const { name, spec, place } of wanted) {
  const why = fetchPackage(spec, place)
  if (why) console.log(`${name} is left out: ${why}`)
}
run(process.execPath, ['--test', '--test-reporter=spec', 'scripts/agents/agents.test.mjs'], {
  env: { ...process.env, AGENTS: wanted.map(({ name }) => name).join() },
  cwd: root,
})
