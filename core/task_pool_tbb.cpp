#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include "core/task_pool.h"

namespace stagecoach {

namespace {

/// More threads than any pool asks for (see settings: STAGECOACH_THREADS).
constexpr size_t kMaxWorkers = 1024;

class TbbTaskPool final : public TaskPool {
 public:
  explicit TbbTaskPool(int thread_count) : arena_(thread_count, 1) {}

  void parallel_for(int64_t count, const std::function<void(int64_t)>& body) override {
    if (count == 1 || arena_.max_concurrency() == 1) {
      for (int64_t index = 0; index < count; ++index) body(index);
      return;
    }
    arena_.execute([&] {
      // Isolated, so that a waiting thread never picks up a tile of another device's kernel.
      tbb::this_task_arena::isolate([&] {
        tbb::parallel_for(
            tbb::blocked_range<int64_t>(0, count, 1),
            [&](const tbb::blocked_range<int64_t>& range) {
              for (int64_t index = range.begin(); index != range.end(); ++index) body(index);
            },
            tbb::simple_partitioner());
      });
    });
  }

  int thread_count() const override { return arena_.max_concurrency(); }

 private:
  tbb::task_arena arena_;
};

}  // namespace

std::unique_ptr<TaskPool> TaskPool::create(int thread_count) {
  // oneTBB would cap every arena at the number of cores and complain; the pool's own size is the
  // cap.
  static tbb::global_control uncapped(tbb::global_control::max_allowed_parallelism, kMaxWorkers);
  return std::make_unique<TbbTaskPool>(thread_count < 1 ? 1 : thread_count);
}

}  // namespace stagecoach
