#include "core/mapped_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <mutex>
#include <span>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace stagecoach {

namespace {

int64_t written_ns(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

Status failure(const std::string& what, const std::string& path) {
  return io_error(fmt::format("cannot {} '{}': {}", what, path, std::strerror(errno)));
}

/// What the handler of faults may look at: places that are taken and given back while others read.
struct MappedRange {
  std::atomic<const std::byte*> begin{nullptr};
  std::atomic<const std::byte*> end{nullptr};
  std::array<char, 1024> message{};  ///< written while `begin` is null
  std::atomic<size_t> message_size{0};
};
/// More than a model has files; faults in further ones are signals.
constexpr size_t kMostRanges = 1024;

std::array<MappedRange, kMostRanges>& ranges() {
  static std::array<MappedRange, kMostRanges> all;
  return all;
}

/// Only what may be called in a handler.
void end_at_fault(int signal, siginfo_t* info, void*) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  for (MappedRange& range : ranges()) {
    const std::byte* begin = range.begin.load();
    if (begin == nullptr || address < begin || address >= range.end.load()) continue;
    [[maybe_unused]] ssize_t written =
        ::write(STDERR_FILENO, range.message.data(), range.message_size.load());
    ::_exit(1);
  }
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

std::mutex& ranges_mutex() {
  static std::mutex mutex;
  return mutex;
}

void note_range(std::span<const std::byte> bytes, const std::string& path) {
  std::lock_guard lock(ranges_mutex());
  static const bool is_handled = [] {
    ranges();  // made before the handler needs it
    struct sigaction action = {};
    action.sa_sigaction = end_at_fault;
    action.sa_flags = SA_SIGINFO;
    return ::sigaction(SIGBUS, &action, nullptr) == 0;
  }();
  if (!is_handled) return;
  for (MappedRange& range : ranges()) {
    if (range.begin.load() != nullptr) continue;
    auto end =
        fmt::format_to_n(range.message.begin(), range.message.size(),
                         "stagecoach: cannot read '{}', which is mapped: it was shortened, or "
                         "its disk failed; the last checkpoint is intact\n",
                         path);
    range.message_size = std::min(end.size, range.message.size());
    range.end = bytes.data() + bytes.size();
    range.begin = bytes.data();
    return;
  }
}

void forget_range(const std::byte* data) {
  std::lock_guard lock(ranges_mutex());
  for (MappedRange& range : ranges()) {
    if (range.begin.load() == data) range.begin = nullptr;
  }
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  MappedFile file(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info = {};
  if (file.descriptor_ < 0 || ::fstat(file.descriptor_, &info) != 0) return failure("open", path);
  file.size_ = info.st_size;
  file.written_ns_ = written_ns(info);
  if (file.size_ == 0) return file;
  void* data =
      ::mmap(nullptr, static_cast<size_t>(file.size_), PROT_READ, MAP_SHARED, file.descriptor_, 0);
  if (data == MAP_FAILED) return failure("map", path);
  file.data_ = static_cast<const std::byte*>(data);
  note_range(file.bytes(), path);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(other.size_),
      written_ns_(other.written_ns_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  close();
  path_ = std::move(other.path_);
  descriptor_ = std::exchange(other.descriptor_, -1);
  data_ = std::exchange(other.data_, nullptr);
  size_ = other.size_;
  written_ns_ = other.written_ns_;
  return *this;
}

MappedFile::~MappedFile() {
  close();
}

void MappedFile::close() {
  if (data_ != nullptr) {
    forget_range(data_);
    ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status MappedFile::check_unchanged() const {
  struct stat info = {};
  if (::fstat(descriptor_, &info) != 0) return failure("look at", path_);
  if (info.st_size == size_ && written_ns(info) == written_ns_) return Status::ok();
  std::string how = info.st_size == size_
                        ? "written over"
                        : fmt::format("changed from {} to {} bytes", size_, int64_t{info.st_size});
  return io_error(fmt::format(
      "'{}' was {} while it is in use; give it back as it was, and leave it alone until the run "
      "has ended",
      path_, how));
}

}  // namespace stagecoach
