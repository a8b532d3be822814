// A local npm registry with only the given packages. It tests what will be published: an installer
// finds the main package and chooses the package of its platform by itself.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { createReadStream, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { basename } from 'node:path'

/** Some installers reject packages that were published just now. */
const PUBLISHED = '2020-01-01T00:00:00.000Z'

/** Resolves with `url` and `close()`. */
export async function startRegistry(tarballs) {
  const byName = new Map(tarballs.map((tarball) => describe(tarball)).map((entry) => [entry.name, entry]))
  const byFile = new Map(tarballs.map((tarball) => [basename(tarball), tarball]))
  const server = createServer(({ url }, response) => {
    const path = decodeURIComponent(new URL(url, 'http://localhost').pathname).slice(1)
    const tarball = byFile.get(basename(path))
    if (tarball && path.includes('/-/')) return createReadStream(tarball).pipe(response)
    const entry = byName.get(path)
    response.writeHead(entry ? 200 : 404, { 'content-type': 'application/json' })
    response.end(JSON.stringify(entry ? packument(entry, base()) : { error: 'not found' }))
  })
  const base = () => `http://127.0.0.1:${server.address().port}`
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { url: base(), close: () => server.close().closeAllConnections() }
}

function describe(tarball) {
  const text = execFileSync('tar', ['-xOzf', tarball, '--wildcards', '*/package.json'], { encoding: 'utf8' })
  const bytes = readFileSync(tarball)
  const hash = (algorithm, encoding) => createHash(algorithm).update(bytes).digest(encoding)
  const manifest = JSON.parse(text)
  const dist = { shasum: hash('sha1', 'hex'), integrity: `sha512-${hash('sha512', 'base64')}` }
  return { name: manifest.name, manifest, dist, file: basename(tarball) }
}

function packument({ name, manifest, dist, file }, base) {
  const { version } = manifest
  const published = { ...manifest, dist: { ...dist, tarball: `${base}/${name}/-/${file}` } }
  return {
    name,
    'dist-tags': { latest: version },
    versions: { [version]: published },
    time: { created: PUBLISHED, modified: PUBLISHED, [version]: PUBLISHED },
  }
}
