#include "memory/node_binder.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace stagecoach {

namespace {

constexpr int64_t kMostSampledPages = 512;

Status refused_by_system(const char* call) {
  return unavailable(fmt::format("{}: {}", call, std::strerror(errno)));
}

ByteCount system_page_bytes() {
  return std::max<ByteCount>(1, ::sysconf(_SC_PAGESIZE));
}

/// A set of nodes as the system takes it: bits of longs, and one more than there are bits.
class NodeMask {
 public:
  explicit NodeMask(int node) : words_(static_cast<size_t>(node) / kBits + 1) {
    words_.back() = 1UL << (static_cast<size_t>(node) % kBits);
  }
  const unsigned long* data() const { return words_.data(); }
  unsigned long bits() const { return words_.size() * kBits + 1; }

 private:
  static constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> words_;
};

/// The system calls themselves: hwloc does nothing, and says that it did, for a machine that was
/// described to it, and tells which nodes pages lie on but not how many.
class SystemNodeBinder final : public NodeBinder {
 public:
  Status bind_pages(std::byte* data, ByteCount size, int node) override {
    NodeMask mask(node);
    long failed = ::syscall(SYS_mbind, data, static_cast<unsigned long>(size), MPOL_BIND,
                            mask.data(), mask.bits(), MPOL_MF_STRICT);
    return failed == 0 ? Status::ok() : refused_by_system("mbind");
  }

  Status bind_allocations(int node) override {
    NodeMask mask(node);
    long failed = ::syscall(SYS_set_mempolicy, MPOL_BIND, mask.data(), mask.bits());
    return failed == 0 ? Status::ok() : refused_by_system("set_mempolicy");
  }

  Status bind_thread(const std::vector<int>& cpus) override {
    if (cpus.empty()) return unavailable("the node has no processors that threads may run on");
    auto count = static_cast<size_t>(*std::max_element(cpus.begin(), cpus.end())) + 1;
    cpu_set_t* set = CPU_ALLOC(count);
    if (set == nullptr) return refused_by_system("CPU_ALLOC");
    size_t size = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(size, set);
    for (int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), size, set);
    int failed = ::sched_setaffinity(0, size, set);
    Status status = failed == 0 ? Status::ok() : refused_by_system("sched_setaffinity");
    CPU_FREE(set);
    return status;
  }

  Result<PageNodes> find_pages(const std::byte* data, ByteCount size) override {
    ByteCount page = system_page_bytes();
    int64_t count = std::clamp<int64_t>(size / page, 1, kMostSampledPages);
    std::vector<const void*> places;
    for (int64_t at = 0; at < count; ++at) places.push_back(data + size / count * at);
    for (const void*& place : places) {
      place = reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(place) /
                                            static_cast<uintptr_t>(page) *
                                            static_cast<uintptr_t>(page));
    }
    std::vector<int> found(places.size(), -1);
    long failed =
        ::syscall(SYS_move_pages, 0, places.size(), places.data(), nullptr, found.data(), 0);
    if (failed != 0) return refused_by_system("move_pages");
    PageNodes nodes;
    for (int node : found) {
      if (node < 0) ++nodes.unknown;
      if (node >= 0) ++nodes.pages[node];
    }
    return nodes;
  }
};

}  // namespace

NodeBinder& system_node_binder() {
  static SystemNodeBinder binder;
  return binder;
}

Status run_on_cpus(NodeBinder& binder, const std::vector<int>& cpus,
                   const std::function<void()>& work) {
  Status bound;
  std::thread thread([&] {
    if (!cpus.empty()) bound = binder.bind_thread(cpus);
    work();
  });
  thread.join();
  return bound;
}

}  // namespace stagecoach
