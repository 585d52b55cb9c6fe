/* Preloaded, makes large writes take as long as on a disk of SLOW_BYTES_PER_S. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

enum { kSmallBytes = 65536 };

static ssize_t slowed(ssize_t bytes) {
  const char* rate = getenv("SLOW_BYTES_PER_S");
  if (rate != NULL && bytes > kSmallBytes) {
    usleep((useconds_t)((double)bytes / atof(rate) * 1e6));
  }
  return bytes;
}

ssize_t pwrite64(int file, const void* from, size_t size, off64_t offset) {
  ssize_t (*real)(int, const void*, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
  return slowed(real(file, from, size, offset));
}

ssize_t pwrite(int file, const void* from, size_t size, off_t offset) {
  return pwrite64(file, from, size, offset);
}
