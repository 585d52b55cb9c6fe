#include "core/file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/byte_source.h"

namespace stagecoach {

namespace {

Status system_failure(std::string_view action, const std::string& path, int error) {
  std::string message =
      fmt::format("cannot {} '{}': {}", action, path, std::generic_category().message(error));
  switch (error) {
    case ENOENT:
      return not_found(std::move(message));
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return resource_exhausted(std::move(message));
    default:
      return io_error(std::move(message));
  }
}

/// Devices and pipes may never end, so nothing but files is read.
Status not_a_file(const std::string& path, mode_t mode) {
  return io_error(fmt::format("cannot read '{}': it is a {}, not a file; name a file", path,
                              S_ISDIR(mode) ? "folder" : "device or pipe"));
}

/// An open file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }

 private:
  int value_;
};

int open_retrying(const std::string& path, int flags, mode_t mode = 0666) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

/// Pipes and devices cannot be synchronised and say EINVAL: nothing of theirs could be lost.
bool sync_descriptor(int descriptor) {
  int result = 0;
  do {
    result = ::fsync(descriptor);
  } while (result != 0 && errno == EINTR);
  return result == 0 || errno == EINVAL || errno == ENOTSUP;
}

std::string parent_folder(const std::string& path) {
  std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

/// A name beside `path` that no other thread or process uses.
std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return fmt::format("{}.{}.{}.tmp", path, ::getpid(), counter.fetch_add(1));
}

/// Whether `name` is one that `temporary_name` makes: "….<process>.<counter>.tmp".
bool is_temporary_name(std::string_view name) {
  constexpr std::string_view kSuffix = ".tmp";
  if (!name.ends_with(kSuffix)) return false;
  name.remove_suffix(kSuffix.size());
  for (int part = 0; part < 2; ++part) {
    size_t dot = name.rfind('.');
    if (dot == std::string_view::npos || dot == 0 || dot + 1 == name.size()) return false;
    if (name.find_first_not_of("0123456789", dot + 1) != std::string_view::npos) return false;
    name = name.substr(0, dot);
  }
  return true;
}

}  // namespace

void remove_unfinished_files(const std::string& folder) {
  std::vector<std::filesystem::path> condemned;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (is_temporary_name(it->path().filename().string())) condemned.push_back(it->path());
  }
  for (const std::filesystem::path& path : condemned) std::filesystem::remove(path, error);
}

Result<std::string> read_file(const std::string& path) {
  // A pipe would block in open, before it can be refused.
  Descriptor file(open_retrying(path, O_RDONLY | O_NONBLOCK));
  if (file.get() < 0) return system_failure("read", path, errno);
  std::string content;
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return system_failure("read", path, errno);
  if (!S_ISREG(info.st_mode)) return not_a_file(path, info.st_mode);
  if (info.st_size > 0) {
    content.reserve(static_cast<size_t>(info.st_size));
  }
  // Read to the end rather than to st_size: files in /proc say zero.
  std::string piece(static_cast<size_t>(256 * kKiB), '\0');
  while (true) {
    ssize_t count = ::read(file.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_failure("read", path, errno);
    if (count == 0) return content;
    content.append(piece.data(), static_cast<size_t>(count));
  }
}

Status write_file_atomically(const std::string& named, std::string_view content) {
  // A link stays, and what it leads to is replaced; a device or pipe is no file to replace.
  std::error_code ignored;
  std::filesystem::path resolved = std::filesystem::canonical(named, ignored);
  const std::string path = ignored ? named : resolved.string();
  struct stat info = {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return not_a_file(named, info.st_mode);
  }
  std::string temporary = temporary_name(path);
  auto write_temporary = [&]() -> Status {
    STAGECOACH_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::create(temporary));
    STAGECOACH_RETURN_IF_ERROR(
        writer.write(content.data(), static_cast<ByteCount>(content.size())));
    STAGECOACH_RETURN_IF_ERROR(writer.finish());
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
      return system_failure("replace", path, errno);
    }
    return Status::ok();
  };
  if (Status status = write_temporary(); !status.is_ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return sync_folder(parent_folder(path));
}

Status make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return system_failure("create folder", path, error.value());
  if (!std::filesystem::is_directory(path, error)) {
    return system_failure("create folder", path, ENOTDIR);
  }
  return Status::ok();
}

Status check_folder_writable(const std::string& path) {
  STAGECOACH_RETURN_IF_ERROR(make_folders(path));
  std::string probe = temporary_name(path + "/.writable");
  {
    Descriptor file(open_retrying(probe, O_WRONLY | O_CREAT | O_EXCL));
    if (file.get() < 0) return system_failure("write into folder", path, errno);
  }
  ::unlink(probe.c_str());
  return Status::ok();
}

Status sync_folder(const std::string& path) {
  Descriptor folder(open_retrying(path, O_RDONLY | O_DIRECTORY));
  if (folder.get() < 0) return system_failure("open folder", path, errno);
  if (!sync_descriptor(folder.get())) return system_failure("sync folder", path, errno);
  return Status::ok();
}

Result<FileWriter> FileWriter::create(const std::string& path) {
  int descriptor = open_retrying(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (descriptor < 0) return system_failure("create", path, errno);
  return FileWriter(descriptor, path);
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status FileWriter::write(const void* data, ByteCount size) {
  if (descriptor_ < 0) return failed_precondition(fmt::format("'{}' is closed", path_));
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    ssize_t count =
        ::write(descriptor_, next, static_cast<size_t>(std::min(size, kMaxTransferBytes)));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_failure("write", path_, errno);
    next += count;
    size -= count;
  }
  return Status::ok();
}

Status FileWriter::write_at(ByteCount offset, const void* data, ByteCount size) {
  if (descriptor_ < 0) return failed_precondition(fmt::format("'{}' is closed", path_));
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    ssize_t count =
        ::pwrite(descriptor_, next, static_cast<size_t>(std::min(size, kMaxTransferBytes)), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_failure("write", path_, errno);
    next += count;
    offset += count;
    size -= count;
  }
  return Status::ok();
}

Status FileWriter::resize(ByteCount size) {
  if (descriptor_ < 0) return failed_precondition(fmt::format("'{}' is closed", path_));
  if (::ftruncate(descriptor_, size) == 0) return Status::ok();
  return system_failure("resize", path_, errno);
}

Status FileWriter::finish() {
  if (descriptor_ < 0) return failed_precondition(fmt::format("'{}' is closed", path_));
  bool synced = sync_descriptor(descriptor_);
  int sync_error = errno;
  // Linux frees the descriptor whatever close says; late write errors are reported here.
  bool closed = ::close(std::exchange(descriptor_, -1)) == 0;
  if (!synced) return system_failure("sync", path_, sync_error);
  if (!closed && errno != EINTR) return system_failure("close", path_, errno);
  return Status::ok();
}

Result<FolderLock> FolderLock::acquire(const std::string& path) {
  int descriptor = open_retrying(path, O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) return system_failure("open folder", path, errno);
  FolderLock lock(descriptor);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK) {
    return failed_precondition(
        fmt::format("another run is writing to '{}'; wait for it, or name another folder", path));
  }
  // Some network file systems have no locks; that is no reason not to train.
  return lock;
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<FileReader> FileReader::open(const std::string& path) {
  // A pipe would block in open, before it can be refused.
  FileReader reader(open_retrying(path, O_RDONLY | O_NONBLOCK), path, 0);
  if (reader.descriptor_ < 0) return system_failure("read", path, errno);
  struct stat info = {};
  if (::fstat(reader.descriptor_, &info) != 0) return system_failure("read", path, errno);
  if (!S_ISREG(info.st_mode)) return not_a_file(path, info.st_mode);
  reader.size_ = info.st_size;
  return reader;
}

FileReader::FileReader(FileReader&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      size_(other.size_) {}

FileReader& FileReader::operator=(FileReader&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  return *this;
}

FileReader::~FileReader() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status FileReader::read(ByteCount offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    size_t size = std::min(out.size(), static_cast<size_t>(kMaxTransferBytes));
    ssize_t count = ::pread(descriptor_, out.data(), size, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return system_failure(fmt::format("read from byte {} of", offset), path_, errno);
    }
    if (count == 0) {
      return io_error(
          fmt::format("'{}' ends at byte {}, it had {} when it was opened: it was shortened while "
                      "it was read; copy it anew",
                      path_, offset, size_));
    }
    out = out.subspan(static_cast<size_t>(count));
    offset += count;
  }
  return Status::ok();
}

}  // namespace stagecoach
