#include <cstdio>
#include <stagecoach_version.h>

#include "core/bytes.h"
#include "core/task_pool.h"

int main() {
  std::printf("stagecoach %s (%s)\n", STAGECOACH_VERSION, STAGECOACH_COMMIT);
  std::printf("%d host threads, pages of %s\n", stagecoach::usable_thread_count(),
              stagecoach::format_bytes(2 * stagecoach::kMiB).c_str());
  return 0;
}
