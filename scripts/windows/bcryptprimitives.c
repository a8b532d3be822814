// Rust's standard library gets random numbers from this DLL, which Wine 8 does not have. For tests
// only.
#include <stddef.h>

__declspec(dllimport) unsigned char __stdcall SystemFunction036(void *buffer, unsigned long size); // RtlGenRandom

__declspec(dllexport) int __stdcall ProcessPrng(unsigned char *buffer, size_t size) {
  return SystemFunction036(buffer, (unsigned long)size);
}
