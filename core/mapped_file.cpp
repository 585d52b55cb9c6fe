#include "core/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
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

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  MappedFile file(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info = {};
  if (file.descriptor_ < 0 || ::fstat(file.descriptor_, &info) != 0) return failure("open", path);
  file.size_ = info.st_size;
  file.written_ns_ = written_ns(info);
  if (file.size_ == 0) return file;
  void* data = ::mmap(nullptr, static_cast<size_t>(file.size_), PROT_READ, MAP_SHARED,
                      file.descriptor_, 0);
  if (data == MAP_FAILED) return failure("map", path);
  file.data_ = static_cast<const std::byte*>(data);
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
    ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status MappedFile::check_unchanged() const {
  struct stat info = {};
  if (::fstat(descriptor_, &info) != 0) return failure("look at", path_);
  if (info.st_size == size_ && written_ns(info) == written_ns_) return Status::ok();
  return data_loss(fmt::format(
      "'{}' was changed while it is in use: it has {} bytes and had {}; leave it alone until the "
      "run has ended",
      path_, int64_t{info.st_size}, size_));
}

}  // namespace stagecoach
