export * from './register.js'
