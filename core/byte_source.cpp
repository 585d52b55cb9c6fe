#include "core/byte_source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace stagecoach {

namespace {

Status cannot_read(const std::string& path, int error) {
  std::error_code unknown;
  std::filesystem::path target = std::filesystem::read_symlink(path, unknown);
  if (error == ENOENT && !unknown) {
    return not_found(
        fmt::format("cannot read '{}': it is a link to '{}', which is not there; bring that file "
                    "back or name another",
                    path, target.string()));
  }
  std::string message =
      fmt::format("cannot read '{}': {}", path, std::generic_category().message(error));
  return error == ENOENT ? not_found(std::move(message)) : io_error(std::move(message));
}

class FileBytes : public ByteSource {
 public:
  FileBytes(std::string path, int descriptor, ByteCount size)
      : ByteSource(std::move(path)), descriptor_(descriptor), size_(size) {}
  ~FileBytes() override { ::close(descriptor_); }

  ByteCount size() const override { return size_; }

  Status read(ByteCount offset, void* target, ByteCount count) const override {
    STAGECOACH_CHECK(offset >= 0 && count >= 0 && offset <= size_ - count);
    auto* bytes = static_cast<std::byte*>(target);
    while (count > 0) {
      ssize_t done = ::pread(descriptor_, bytes,
                             static_cast<size_t>(std::min(count, kMaxTransferBytes)), offset);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) {
        return io_error(fmt::format("cannot read '{}' at byte {}: {}", name(), offset,
                                    std::generic_category().message(errno)));
      }
      if (done == 0) {
        return io_error(fmt::format(
            "'{}' ends at byte {} and had {} when it was opened: something has cut it meanwhile; "
            "restore it and run the command again",
            name(), offset, size_));
      }
      bytes += done;
      offset += done;
      count -= done;
    }
    return Status::ok();
  }

 private:
  int descriptor_;
  ByteCount size_;
};

class MemoryBytes : public ByteSource {
 public:
  MemoryBytes(std::string name, std::shared_ptr<const std::byte> data, ByteCount size)
      : ByteSource(std::move(name)), data_(std::move(data)), size_(size) {}

  ByteCount size() const override { return size_; }

  Status read(ByteCount offset, void* target, ByteCount count) const override {
    STAGECOACH_CHECK(offset >= 0 && count >= 0 && offset <= size_ - count);
    if (count > 0) std::memcpy(target, data_.get() + offset, static_cast<size_t>(count));
    return Status::ok();
  }

 private:
  std::shared_ptr<const std::byte> data_;
  ByteCount size_;
};

}  // namespace

Result<std::shared_ptr<const ByteSource>> open_byte_source(const std::string& path) {
  int descriptor = -1;
  do {
    // A pipe would block in open, before it can be refused.
    descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) return cannot_read(path, errno);
  struct stat info = {};
  bool is_known = ::fstat(descriptor, &info) == 0;
  int error = errno;
  // From here on the descriptor closes itself.
  auto file = std::make_shared<FileBytes>(path, descriptor, is_known ? info.st_size : 0);
  if (!is_known) return cannot_read(path, error);
  if (!S_ISREG(info.st_mode)) {
    return io_error(fmt::format("cannot read '{}': it is a {}, not a file; name a file", path,
                                S_ISDIR(info.st_mode) ? "folder" : "device or pipe"));
  }
  return std::shared_ptr<const ByteSource>(std::move(file));
}

std::shared_ptr<const ByteSource> bytes_in_memory(std::string name,
                                                  std::shared_ptr<const std::byte> data,
                                                  ByteCount size) {
  return std::make_shared<MemoryBytes>(std::move(name), std::move(data), size);
}

}  // namespace stagecoach
