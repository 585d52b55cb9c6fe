#include "tests/kernels/kernel_emulation.h"

#include <array>
#include <fmt/format.h>
#include <ucontext.h>
#include <vector>

#include "tests/kernels/emulated_kernels.h"
#include "tests/kernels/gpu_language.h"

namespace stagecoach {

namespace emulation {

Extent thread_index, block_index, block_size, grid_size;
unsigned char* shared_memory = nullptr;

namespace {

constexpr unsigned kGroup = 32;
constexpr size_t kStackBytes = 128 * 1024;

enum class Stage : uint8_t { kRuns, kAtLanesBarrier, kAtBlockBarrier, kEnded };

struct Fiber {
  ucontext_t context;
  Stage stage = Stage::kRuns;
  uint32_t offered = 0;
};

/// One block: its threads run in turn, each until it waits for others.
class Block {
 public:
  void run(const EmulatedKernel& kernel, const uint64_t* slots, unsigned threads) {
    kernel_ = &kernel;
    slots_ = slots;
    fibers_.resize(threads);
    if (stacks_.size() < threads * kStackBytes) stacks_.resize(threads * kStackBytes);
    for (unsigned i = 0; i < threads; ++i) {
      Fiber& fiber = fibers_[i];
      fiber.stage = Stage::kRuns;
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = stacks_.data() + i * kStackBytes;
      fiber.context.uc_stack.ss_size = kStackBytes;
      fiber.context.uc_link = &scheduler_;
      makecontext(&fiber.context, &Block::enter, 0);
    }
    do {
      for (unsigned i = 0; i < threads; ++i) {
        if (fibers_[i].stage != Stage::kRuns) continue;
        current_ = i;
        thread_index.x = i;
        swapcontext(&scheduler_, &fibers_[i].context);
      }
    } while (release(threads));
  }

  void wait_at(Stage stage) {
    fibers_[current_].stage = stage;
    swapcontext(&fibers_[current_].context, &scheduler_);
  }
  uint32_t exchange(uint32_t value, unsigned lane) {
    unsigned group = current_ / kGroup * kGroup;
    fibers_[current_].offered = value;
    wait_at(Stage::kAtLanesBarrier);
    uint32_t result = group + lane < fibers_.size() ? fibers_[group + lane].offered : value;
    wait_at(Stage::kAtLanesBarrier);
    return result;
  }

  static Block& instance() {
    static Block block;
    return block;
  }

 private:
  static void enter() {
    Block& block = instance();
    block.kernel_->run(block.slots_);
    block.fibers_[block.current_].stage = Stage::kEnded;
  }

  /// Lets those go on whose barrier is complete; false when all have ended.
  bool release(unsigned threads) {
    bool all_wait = true;
    bool any_released = false;
    for (unsigned first = 0; first < threads; first += kGroup) {
      unsigned end = std::min(first + kGroup, threads);
      bool complete = true;
      for (unsigned i = first; i < end; ++i) {
        Stage stage = fibers_[i].stage;
        complete = complete && (stage == Stage::kAtLanesBarrier || stage == Stage::kEnded);
        all_wait = all_wait && (stage == Stage::kAtBlockBarrier || stage == Stage::kEnded);
      }
      for (unsigned i = first; i < end && complete; ++i) {
        if (fibers_[i].stage == Stage::kEnded) continue;
        fibers_[i].stage = Stage::kRuns;
        any_released = true;
      }
    }
    for (unsigned i = 0; i < threads && all_wait; ++i) {
      if (fibers_[i].stage == Stage::kEnded) continue;
      fibers_[i].stage = Stage::kRuns;
      any_released = true;
    }
    return any_released;
  }

  const EmulatedKernel* kernel_ = nullptr;
  const uint64_t* slots_ = nullptr;
  unsigned current_ = 0;
  ucontext_t scheduler_;
  std::vector<Fiber> fibers_;
  std::vector<unsigned char> stacks_;
};

}  // namespace

void block_barrier() {
  Block::instance().wait_at(Stage::kAtBlockBarrier);
}
void lanes_barrier() {
  Block::instance().wait_at(Stage::kAtLanesBarrier);
}
uint32_t exchange(uint32_t value, unsigned lane) {
  return Block::instance().exchange(value, lane);
}

}  // namespace emulation

namespace {

Status emulate_launch(const GpuKernelLaunch& launch, const uint64_t* slots) {
  const emulation::EmulatedKernel* kernel = emulation::find_emulated_kernel(launch.kernel);
  if (kernel == nullptr) return invalid_argument(fmt::format("no kernel '{}'", launch.kernel));
  if (kernel->argument_count != launch.argument_count) {
    return invalid_argument(fmt::format("kernel '{}' takes {} arguments, the plan has {}",
                                        launch.kernel, kernel->argument_count,
                                        launch.argument_count));
  }
  std::vector<uint64_t> shared(launch.shared_bytes / sizeof(uint64_t) + 2, ~uint64_t{0});
  auto address = reinterpret_cast<uintptr_t>(shared.data());
  emulation::shared_memory = reinterpret_cast<unsigned char*>((address + 15) / 16 * 16);
  emulation::grid_size = {launch.grid[0], launch.grid[1], launch.grid[2]};
  emulation::block_size = {launch.block[0], launch.block[1], launch.block[2]};
  for (unsigned y = 0; y < launch.grid[1]; ++y) {
    for (unsigned x = 0; x < launch.grid[0]; ++x) {
      emulation::block_index = {x, y, 0};
      emulation::Block::instance().run(*kernel, slots, launch.block[0]);
    }
  }
  return Status::ok();
}

/// Memory full of NaN bits, so that what reads it before writing it is seen.
class Scratch {
 public:
  explicit Scratch(ByteCount size)
      : words_(static_cast<size_t>(size) / 8 + 64, ~uint64_t{0}),
        address_((reinterpret_cast<uintptr_t>(words_.data()) + 255) / 256 * 256) {}
  uint64_t address() const { return address_; }

 private:
  std::vector<uint64_t> words_;
  uint64_t address_;
};

/// False: the library does not serve it.
Result<bool> run_in_library(GpuLibrary& library, const GpuProduct& product, int64_t round,
                            uint64_t workspace) {
  GpuProductRound part = product_round(product, round, workspace);
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<ByteCount> size, library.find_product(part.shape));
  if (!size.has_value()) return false;
  Scratch scratch(*size);
  Status ran = library.run_product(part.shape, part.operands, {nullptr, scratch.address(), *size});
  if (!ran.is_ok()) return ran;
  return true;
}

Result<bool> run_in_library(GpuLibrary& library, const GpuAttention& attention) {
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<ByteCount> size,
                              library.find_attention(attention.shape));
  if (!size.has_value()) return false;
  Scratch scratch(*size);
  Status ran = library.run_attention(attention.shape, attention.operands,
                                     {nullptr, scratch.address(), *size});
  if (!ran.is_ok()) return ran;
  return true;
}

/// The product that launch `index` computes, or null.
const GpuProduct* product_of(const GpuLaunchPlan& plan, int index) {
  for (int i = 0; i < plan.product_count; ++i) {
    const GpuProduct& product = plan.products[static_cast<size_t>(i)];
    if (product.launch == index) return &product;
  }
  return nullptr;
}

}  // namespace

Status emulate_plan(const GpuLaunchPlan& plan, uint64_t* error_word, GpuLibrary* library) {
  bool is_done = false;
  if (library != nullptr && plan.attention.has_value()) {
    STAGECOACH_ASSIGN_OR_RETURN(is_done, run_in_library(*library, *plan.attention));
  }
  if (is_done) return Status::ok();
  Scratch workspace(plan.workspace_bytes);
  for (int64_t round = 0; round < plan.rounds; ++round) {
    for (int i = 0; i < plan.launch_count; ++i) {
      const GpuProduct* product = library == nullptr ? nullptr : product_of(plan, i);
      if (product != nullptr) {
        STAGECOACH_ASSIGN_OR_RETURN(bool served,
                                    run_in_library(*library, *product, round, workspace.address()));
        if (served) continue;
      }
      const GpuKernelLaunch& launch = plan.launches[static_cast<size_t>(i)];
      std::array<uint64_t, GpuKernelLaunch::kMaxArguments> slots = launch.arguments;
      for (size_t k = 0; k < static_cast<size_t>(launch.argument_count); ++k) {
        slots[k] += static_cast<uint64_t>(launch.steps[k] * round);
        if ((launch.workspace_arguments >> k & 1u) != 0) slots[k] += workspace.address();
        if ((launch.error_arguments >> k & 1u) != 0) {
          slots[k] = reinterpret_cast<uintptr_t>(error_word);
        }
      }
      STAGECOACH_RETURN_IF_ERROR(emulate_launch(launch, slots.data()));
    }
  }
  return Status::ok();
}

}  // namespace stagecoach
