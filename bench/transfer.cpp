// Do urgent copies get through while bulk copies keep the link busy? README.md says how to read the
// rows.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <thread>

#include "backends/register_backends.h"
#include "bench/host_load.h"
#include "core/clock.h"
#include "core/json.h"
#include "hal/hal.h"
#include "memory/pageable_memory.h"
#include "scheduler/transfer_probe.h"

namespace stagecoach {
namespace {

constexpr double kNsPerMs = 1e6, kNsPerSecond = 1e9;

struct Options {
  std::string device = "cpu:1[h2d=1G,d2h=1G]";
  std::vector<int64_t> chunks_kib;  ///< empty: around bulk_chunk_bytes
  std::vector<int> ahead;           ///< of alternating chunks, besides any number
  int row_ms = 0;                   ///< 0: 500 on hardware, 250 elsewhere
  double urgent_share = 3.0 / 55;   ///< of the link: about what activations take
  int update_threads = std::max(1, usable_thread_count() - 2);
  std::string update = "both";
  bool causes = false;
  std::string json;  ///< file
};

enum class Direction { kUp, kDown, kDuplex };
constexpr const char* kDirectionNames[] = {"up", "down", "duplex"};

struct Row {
  BulkMethod method = BulkMethod::kWhole;
  ByteCount chunk_bytes = bulk_chunk_bytes(0);
  int ahead = 0;
  bool has_urgent = true;
  bool splits = false;
  int ring_chunks = 0;
  double seconds = 0;  ///< 0: as the options say
};

/// A part of an urgent copy's time, as rows name it.
struct Part {
  const char* name;
  int64_t UrgentTime::*time;
};
constexpr Part kParts[] = {{"late", &UrgentTime::late_ns},
                           {"issue", &UrgentTime::issue_ns},
                           {"queue", &UrgentTime::queue_ns},
                           {"copy", &UrgentTime::copy_ns}};

/// What one direction of a row gave.
struct Figures {
  double bytes_per_s = 0;
  double p50_ms = 0, p99_ms = 0, most_ms = 0;
  int64_t copies = 0;
  TransferProbeResult probe;
};

/// One direction's memory. Each side of a copy is `bytes` of bulk, then `urgent` bytes.
struct Side {
  BufferHandle device, host;
};

class Bench {
 public:
  static Status run(const Options& options);

 private:
  explicit Bench(const Options& options) : options_(options) {}
  Status open();
  Status measure_link();
  Status fill_sources();
  std::vector<Row> rows() const;
  Status run_group(Direction direction, bool updates);
  Status run_methods();
  Status run_causes();
  Status run_pageable();
  Status run_cause(Direction direction, const char* load_name, const HostLoad& load);
  Result<std::vector<Figures>> run_row(Direction direction, const Row& row);
  Result<Figures> probe(bool up, const Row& row, const ProbeMemory& memory);
  ProbeMemory memory_of(bool up) const;
  Status clear_targets();
  Status verify(bool up);
  void report(Direction direction, bool updates, const Row& row,
              const std::vector<Figures>& figures, double alone, double update_gb_per_s);
  void for_parts(const std::function<void(ByteCount, ByteCount)>& body);

  Options options_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<TaskPool> pool_ = TaskPool::create(usable_thread_count());
  std::unique_ptr<Stream> stream_;
  Side up_, down_;
  ByteCount bulk_bytes_ = 0, urgent_bytes_ = 0;
  double link_bytes_per_s_ = 0;
  int row_ms_ = 0;
  uint64_t seed_ = 1;
  Json table_ = Json::array();
};

Status Bench::open() {
  STAGECOACH_ASSIGN_OR_RETURN(devices_, built_in_backends().open_devices(options_.device));
  Device& device = *devices_.front();
  if (device.virtual_time() != nullptr) {
    return invalid_argument("simulated devices move nothing; name one that exists, or cpu:1[…]");
  }
  row_ms_ = options_.row_ms > 0 ? options_.row_ms : (device.info().is_real_hardware ? 500 : 250);
  STAGECOACH_ASSIGN_OR_RETURN(stream_, device.create_stream({"check"}));
  STAGECOACH_RETURN_IF_ERROR(measure_link());
  urgent_bytes_ = bulk_chunk_bytes(link_bytes_per_s_);
  // 20 ms of the link, 1 GiB on a PCIe 5.0 one.
  auto window = static_cast<ByteCount>(link_bytes_per_s_ * 0.02) / kMiB * kMiB;
  bulk_bytes_ = std::clamp(window, 16 * kMiB, kGiB);
  for (Side* side : {&up_, &down_}) {
    ByteCount bytes = bulk_bytes_ + urgent_bytes_;
    STAGECOACH_ASSIGN_OR_RETURN(
        side->device, require_buffer(device.allocate(bytes, "bench"), device, bytes, "bench"));
    STAGECOACH_ASSIGN_OR_RETURN(
        side->host, require_buffer(device.allocate_pinned(bytes, "bench"), device, bytes, "bench"));
  }
  return fill_sources();
}

/// About how fast the link is, from copies of 16 MiB.
Status Bench::measure_link() {
  constexpr ByteCount kProbe = 16 * kMiB;
  Device& device = *devices_.front();
  STAGECOACH_ASSIGN_OR_RETURN(
      BufferHandle target, require_buffer(device.allocate(kProbe, "link"), device, kProbe, "link"));
  STAGECOACH_ASSIGN_OR_RETURN(
      BufferHandle source,
      require_buffer(device.allocate_pinned(kProbe, "link"), device, kProbe, "link"));
  TransferProbe probe;
  probe.method = BulkMethod::kWhole;
  for (ByteCount bytes : {kProbe, 2 * kProbe}) {
    probe.bulk_bytes = bytes;
    ProbeMemory memory{target->view(), source->view(), {}, {}};
    STAGECOACH_ASSIGN_OR_RETURN(TransferProbeResult result,
                                run_transfer_probe(device, memory, probe));
    link_bytes_per_s_ = result.bytes_per_s;
  }
  return Status::ok();
}

void Bench::for_parts(const std::function<void(ByteCount, ByteCount)>& body) {
  ByteCount total = bulk_bytes_ + urgent_bytes_;
  pool_->parallel_for((total + kMiB - 1) / kMiB, [&](int64_t part) {
    body(part * kMiB, std::min(kMiB, total - part * kMiB));
  });
}

/// Every eight bytes differ. The device side of downloads gets the same.
Status Bench::fill_sources() {
  std::byte* host = up_.host->host_data();
  for_parts([host](ByteCount begin, ByteCount size) {
    auto* words = reinterpret_cast<uint64_t*>(host + begin);
    for (int64_t i = 0; i < size / 8; ++i) {
      words[i] = (static_cast<uint64_t>(begin / 8 + i) + 1) * 0x9E3779B97F4A7C15u;
    }
  });
  STAGECOACH_RETURN_IF_FAILED(stream_->copy({down_.device->view(), up_.host->view(), "fill"}));
  return stream_->synchronize();
}

Status Bench::clear_targets() {
  STAGECOACH_RETURN_IF_FAILED(stream_->fill({up_.device->view(), 0xEE, 1, "clear"}));
  std::byte* host = down_.host->host_data();
  for_parts([host](ByteCount begin, ByteCount size) {
    std::memset(host + begin, 0xEE, static_cast<size_t>(size));
  });
  return stream_->synchronize();
}

/// Whether the target of a direction holds what its source held.
Status Bench::verify(bool up) {
  if (up) {
    STAGECOACH_RETURN_IF_FAILED(stream_->copy({down_.host->view(), up_.device->view(), "check"}));
    STAGECOACH_RETURN_IF_ERROR(stream_->synchronize());
  }
  const std::byte* expected = up_.host->host_data();
  const std::byte* found = down_.host->host_data();
  std::atomic<int64_t> wrong{-1};
  for_parts([&](ByteCount begin, ByteCount size) {
    if (std::memcmp(expected + begin, found + begin, static_cast<size_t>(size)) != 0) wrong = begin;
  });
  if (wrong < 0) return Status::ok();
  return data_loss(fmt::format("bytes from {} on have arrived wrong", wrong.load()));
}

ProbeMemory Bench::memory_of(bool up) const {
  const Side& side = up ? up_ : down_;
  return {side.device->slice(0, bulk_bytes_), side.host->slice(0, bulk_bytes_),
          side.device->slice(bulk_bytes_, urgent_bytes_),
          side.host->slice(bulk_bytes_, urgent_bytes_)};
}

std::vector<Row> Bench::rows() const {
  ByteCount usual = bulk_chunk_bytes(link_bytes_per_s_);
  std::vector<ByteCount> chunks;
  for (int64_t kib : options_.chunks_kib) chunks.push_back(kib * kKiB);
  if (chunks.empty()) chunks = {usual / 2, usual, 2 * usual};
  std::vector<Row> rows = {{BulkMethod::kWhole, usual, 0, true}};
  for (ByteCount chunk : chunks) rows.push_back({BulkMethod::kAlternating, chunk, 0, true});
  ByteCount middle = chunks[chunks.size() / 2];
  for (int ahead : options_.ahead) rows.push_back({BulkMethod::kAlternating, middle, ahead, true});
  for (ByteCount chunk : chunks) rows.push_back({BulkMethod::kSharedStream, chunk, 0, true});
  for (ByteCount chunk : chunks) rows.push_back({BulkMethod::kOneInFlight, chunk, 0, true});
  return rows;
}

Result<Figures> Bench::probe(bool up, const Row& row, const ProbeMemory& memory) {
  TransferProbe probe;
  probe.up = up;
  probe.method = row.method;
  probe.chunk_bytes = row.chunk_bytes;
  probe.ahead = row.ahead;
  probe.splits = row.splits;
  probe.ring_chunks = row.ring_chunks;
  double row_s = row.seconds > 0 ? row.seconds : row_ms_ / 1e3;
  probe.bulk_bytes = static_cast<ByteCount>(link_bytes_per_s_ * row_s);
  double interval_s =
      static_cast<double>(urgent_bytes_) / (link_bytes_per_s_ * options_.urgent_share);
  probe.urgent_interval_ns = static_cast<int64_t>(interval_s * kNsPerSecond);
  if (row.has_urgent) probe.urgent_copies = static_cast<int>(0.9 * row_s / interval_s);
  probe.seed = seed_ + (up ? 0 : 1'000'000);
  STAGECOACH_ASSIGN_OR_RETURN(TransferProbeResult result,
                              run_transfer_probe(*devices_.front(), memory, probe));
  auto at_ms = [&result](double share) {
    return static_cast<double>(result.urgent_at_ns(share)) / kNsPerMs;
  };
  return Figures{result.bytes_per_s,
                 at_ms(0.5),
                 at_ms(0.99),
                 at_ms(1),
                 static_cast<int64_t>(result.urgent.size()),
                 std::move(result)};
}

Result<std::vector<Figures>> Bench::run_row(Direction direction, const Row& row) {
  ++seed_;
  STAGECOACH_RETURN_IF_ERROR(clear_targets());
  bool goes_up = direction != Direction::kDown, goes_down = direction != Direction::kUp;
  std::optional<Result<Figures>> other;
  std::thread beside;
  if (goes_up && goes_down)
    beside = std::thread([&] { other = probe(false, row, memory_of(false)); });
  Result<Figures> first = probe(goes_up, row, memory_of(goes_up));
  if (beside.joinable()) beside.join();
  STAGECOACH_RETURN_IF_ERROR(first.status());
  std::vector<Figures> figures = {*first};
  if (other) {
    STAGECOACH_RETURN_IF_ERROR(other->status());
    figures.push_back(**other);
  }
  // Downloads first: checking uploads brings them down.
  if (row.has_urgent) {
    if (goes_down) STAGECOACH_RETURN_IF_ERROR(verify(false));
    if (goes_up) STAGECOACH_RETURN_IF_ERROR(verify(true));
  }
  return figures;
}

double rate_of(const std::vector<Figures>& figures) {
  double sum = 0;
  for (const Figures& one : figures) sum += one.bytes_per_s;
  return sum;
}

void Bench::report(Direction direction, bool updates, const Row& row,
                   const std::vector<Figures>& figures, double alone, double update_gb_per_s) {
  Json json = Json::object();
  std::string method = row.has_urgent ? bulk_method_name(row.method) : "bulk alone";
  bool is_cut = row.method != BulkMethod::kWhole;
  double chunk_mib = is_cut ? static_cast<double>(row.chunk_bytes) / kMiB : 0;
  json["direction"] = kDirectionNames[static_cast<int>(direction)];
  json["updates"] = updates;
  json["method"] = method;
  json["chunk_mib"] = chunk_mib;
  json["ahead"] = row.ahead;
  json["gb_per_s"] = rate_of(figures) / 1e9;
  json["of_alone"] = rate_of(figures) / alone;
  json["update_gb_per_s"] = update_gb_per_s;
  double p50 = 0, p99 = 0, most = 0;
  int64_t copies = 0;
  for (const Figures& one : figures) {
    p50 = std::max(p50, one.p50_ms);
    p99 = std::max(p99, one.p99_ms);
    most = std::max(most, one.most_ms);
    copies += one.copies;
  }
  json["urgent_p50_ms"] = p50;
  json["urgent_p99_ms"] = p99;
  json["urgent_max_ms"] = most;
  json["urgent_copies"] = copies;
  fmt::print("{:6} {:7} {:14} {:>6} {:>5} {:8.2f} {:7.3f} {:9} {:9} {:9} {:6} {:>8}\n",
             kDirectionNames[static_cast<int>(direction)], updates ? "updates" : "-", method,
             is_cut ? fmt::format("{:g}", chunk_mib) : "-",
             row.ahead > 0 ? std::to_string(row.ahead) : "-", rate_of(figures) / 1e9,
             rate_of(figures) / alone, copies > 0 ? fmt::format("{:.3f}", p50) : "-",
             copies > 0 ? fmt::format("{:.3f}", p99) : "-",
             copies > 0 ? fmt::format("{:.3f}", most) : "-", copies,
             updates ? fmt::format("{:.1f}", update_gb_per_s) : "-");
  std::fflush(stdout);
  table_.push_back(std::move(json));
}

/// What the load has at hand is there before anything is measured.
void await_work(const HostLoad& load) {
  while (!load.is_at_work()) sleep_until_ns(RealClock::instance().now_ns() + 1'000'000);
}

Status Bench::run_group(Direction direction, bool updates) {
  HostLoad load(updates ? LoadKind::kUpdates : LoadKind::kNone, options_.update_threads,
                Courtesy::kNone);
  await_work(load);
  Row alone_row{BulkMethod::kWhole, bulk_chunk_bytes(link_bytes_per_s_), 0, false};
  struct Measured {
    Row row;
    std::vector<Figures> figures;
    double update_gb_per_s;
  };
  std::vector<Measured> measured;
  std::vector<Row> all = rows();
  // Bulk alone first and last, since a shared host is not equally fast all the time.
  all.insert(all.begin(), alone_row);
  all.push_back(alone_row);
  for (const Row& row : all) {
    int64_t before = load.bytes(), start_ns = RealClock::instance().now_ns();
    STAGECOACH_ASSIGN_OR_RETURN(std::vector<Figures> figures, run_row(direction, row));
    auto took_ns = static_cast<double>(RealClock::instance().now_ns() - start_ns);
    auto touched = static_cast<double>(load.bytes() - before);
    measured.push_back({row, std::move(figures), touched / took_ns});
  }
  double alone = (rate_of(measured.front().figures) + rate_of(measured.back().figures)) / 2;
  for (const Measured& one : measured) {
    report(direction, updates, one.row, one.figures, alone, one.update_gb_per_s);
  }
  return Status::ok();
}

/// Why urgent copies are late beside host work: the same rows beside cores that compute, memory
/// that is busy, and threads that give way.
Status Bench::run_causes() {
  int most = options_.update_threads;
  struct Load {
    const char* name;
    LoadKind kind;
    int threads;
    Courtesy courtesy;
  };
  const Load loads[] = {{"none", LoadKind::kNone, 0, Courtesy::kNone},
                        {"arithmetic", LoadKind::kArithmetic, most, Courtesy::kNone},
                        {"updates", LoadKind::kUpdates, most, Courtesy::kNone},
                        {"updates, nice", LoadKind::kUpdates, most, Courtesy::kNice},
                        {"updates, idle class", LoadKind::kUpdates, most, Courtesy::kIdle},
                        {"updates on half", LoadKind::kUpdates,
                         std::max(1, usable_thread_count() / 2), Courtesy::kNone}};
  fmt::print("{:4} {:20} {:5} {:>8} {:>6} {:>8} {:>8} {:>6}", "", "host", "", "GB/s", "ratio",
             "p50 ms", "p99 ms", "copies");
  for (const Part& part : kParts) fmt::print(" {:>7}99", part.name);
  fmt::print(" {:>8}\n", "upd GB/s");
  for (const Load& one : loads) {
    HostLoad load(one.kind, one.threads, one.courtesy);
    await_work(load);
    for (Direction direction : {Direction::kUp, Direction::kDown}) {
      STAGECOACH_RETURN_IF_ERROR(run_cause(direction, one.name, load));
    }
  }
  return run_pageable();
}

/// What a lane's ring gains where host memory is pageable.
Status Bench::run_pageable() {
  constexpr int kAhead = 16, kRingChunks = 4;
  ByteCount size = std::min<ByteCount>(bulk_bytes_, 256 * kMiB);
  STAGECOACH_ASSIGN_OR_RETURN(PageableMemory memory, PageableMemory::create(size));
  std::memset(memory.data(), 1, static_cast<size_t>(size));
  STAGECOACH_ASSIGN_OR_RETURN(BufferHandle pageable,
                              devices_.front()->wrap_pageable(memory.data(), size, "pageable"));
  ByteCount chunk = bulk_chunk_bytes(link_bytes_per_s_);
  for (bool up : {true, false}) {
    for (int ring_chunks : {0, kRingChunks}) {
      ProbeMemory views = memory_of(up);
      views.bulk_on_host = pageable->view();
      views.bulk_on_device = views.bulk_on_device.slice(0, size);
      Row row{BulkMethod::kAlternating, chunk, kAhead, true, false, ring_chunks, 0.3};
      STAGECOACH_ASSIGN_OR_RETURN(Figures figures, probe(up, row, views));
      Json json = Json::object();
      json["direction"] = up ? "up" : "down";
      json["host"] = ring_chunks > 0 ? "pageable, by a ring" : "pageable";
      json["gb_per_s"] = figures.bytes_per_s / 1e9;
      json["urgent_p50_ms"] = figures.p50_ms;
      json["urgent_p99_ms"] = figures.p99_ms;
      json["urgent_copies"] = figures.copies;
      fmt::print("{:4} {:26} {:8.2f} {:6} {:8.3f} {:8.3f} {:6}\n", up ? "up" : "down",
                 ring_chunks > 0 ? "pageable, by a ring" : "pageable", figures.bytes_per_s / 1e9,
                 "", figures.p50_ms, figures.p99_ms, figures.copies);
      table_.push_back(std::move(json));
    }
  }
  return Status::ok();
}

Status Bench::run_cause(Direction direction, const char* load_name, const HostLoad& load) {
  constexpr double kAloneS = 0.3, kRowS = 1.2;
  constexpr int kAhead = 16;
  constexpr size_t kSlowest = 8;
  ByteCount chunk = bulk_chunk_bytes(link_bytes_per_s_);
  Row alone{BulkMethod::kWhole, chunk, 0, false, false, 0, kAloneS};
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<Figures> bulk, run_row(direction, alone));
  for (bool splits : {false, true}) {
    int64_t before = load.bytes(), start_ns = RealClock::instance().now_ns();
    Row row{BulkMethod::kAlternating, chunk, kAhead, true, splits, 0, kRowS};
    STAGECOACH_ASSIGN_OR_RETURN(std::vector<Figures> figures, run_row(direction, row));
    auto took_ns = static_cast<double>(RealClock::instance().now_ns() - start_ns);
    const Figures& one = figures.front();
    Json json = Json::object();
    json["direction"] = kDirectionNames[static_cast<int>(direction)];
    json["host"] = load_name;
    json["splits"] = splits;
    json["gb_per_s"] = one.bytes_per_s / 1e9;
    json["of_alone"] = one.bytes_per_s / bulk.front().bytes_per_s;
    json["update_gb_per_s"] = static_cast<double>(load.bytes() - before) / took_ns;
    json["urgent_copies"] = one.copies;
    json["urgent_p50_ms"] = one.p50_ms;
    json["urgent_p99_ms"] = one.p99_ms;
    fmt::print("{:4} {:20} {:5} {:8.2f} {:6.3f} {:8.3f} {:8.3f} {:6}",
               kDirectionNames[static_cast<int>(direction)], load_name, splits ? "split" : "whole",
               one.bytes_per_s / 1e9, one.bytes_per_s / bulk.front().bytes_per_s, one.p50_ms,
               one.p99_ms, one.copies);
    const std::vector<UrgentTime>& urgent = one.probe.urgent;
    for (const Part& part : kParts) {
      auto at_ms = [&](double share) {
        return static_cast<double>(one.probe.part_at_ns(share, part.time)) / kNsPerMs;
      };
      json[fmt::format("{}_p50_ms", part.name)] = at_ms(0.5);
      json[fmt::format("{}_p99_ms", part.name)] = at_ms(0.99);
      fmt::print(" {:9.3f}", at_ms(0.99));
      Json slowest = Json::array();
      for (size_t rank = 0; rank < std::min(kSlowest, urgent.size()); ++rank) {
        slowest.push_back(static_cast<double>(urgent[urgent.size() - 1 - rank].*part.time) /
                          kNsPerMs);
      }
      json[fmt::format("{}_of_slowest_ms", part.name)] = std::move(slowest);
    }
    fmt::print(" {:8.1f}\n", static_cast<double>(load.bytes() - before) / took_ns);
    std::fflush(stdout);
    table_.push_back(std::move(json));
  }
  return Status::ok();
}

Status Bench::run_methods() {
  fmt::print("{:6} {:7} {:14} {:>6} {:>5} {:>8} {:>7} {:>9} {:>9} {:>9} {:>6} {:>8}\n", "", "host",
             "method", "MiB", "ahead", "GB/s", "ratio", "p50 ms", "p99 ms", "max ms", "copies",
             "upd GB/s");
  for (bool updates : {false, true}) {
    if (options_.update == (updates ? "off" : "on")) continue;
    for (Direction direction : {Direction::kUp, Direction::kDown, Direction::kDuplex}) {
      STAGECOACH_RETURN_IF_ERROR(run_group(direction, updates));
    }
  }
  return Status::ok();
}

Status Bench::run(const Options& options) {
  Bench bench(options);
  STAGECOACH_RETURN_IF_ERROR(bench.open());
  const DeviceInfo& info = bench.devices_.front()->info();
  fmt::print(
      "{} ({}): link about {:.2f} GB/s, bulk memory {} MiB, urgent copies of {} MiB, {} threads\n",
      info.id, info.name, bench.link_bytes_per_s_ / 1e9, bench.bulk_bytes_ / kMiB,
      bench.urgent_bytes_ / kMiB, usable_thread_count());
  STAGECOACH_RETURN_IF_ERROR(options.causes ? bench.run_causes() : bench.run_methods());
  if (options.json.empty()) return Status::ok();
  Json json = Json::object();
  json["device"] = info.name;
  json["link_gb_per_s"] = bench.link_bytes_per_s_ / 1e9;
  json["rows"] = bench.table_;
  std::FILE* file = std::fopen(options.json.c_str(), "w");
  if (file == nullptr) return invalid_argument("cannot write '" + options.json + "'");
  std::fputs((json.dump(true) + "\n").c_str(), file);
  std::fclose(file);
  return Status::ok();
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  stagecoach::Options options;
  options.ahead = {4, 16};
  CLI::App app("Urgent copies under bulk copies");
  app.add_option("--device", options.device, "cuda:0, cpu:1[h2d=1G,d2h=1G], …");
  app.add_option("--chunks-kib", options.chunks_kib, "chunk sizes; default: half, once, twice");
  app.add_option("--ahead", options.ahead, "limits to try for alternating chunks");
  app.add_option("--row-ms", options.row_ms, "time a row measures");
  app.add_option("--urgent-share", options.urgent_share, "of the link, for urgent copies")
      ->check(CLI::Range(0.001, 0.5));
  app.add_option("--update-threads", options.update_threads, "default: all but two")
      ->check(CLI::PositiveNumber);
  app.add_option("--updates", options.update, "on, off or both")
      ->check(CLI::IsMember({"on", "off", "both"}));
  app.add_flag("--causes", options.causes,
               "why urgent copies are late beside host work: other rows, see README.md");
  app.add_option("--json", options.json, "file for the rows");
  CLI11_PARSE(app, argc, argv);
  stagecoach::Status status = stagecoach::Bench::run(options);
  if (!status.is_ok()) fmt::print(stderr, "{}\n", status.to_string());
  return status.is_ok() ? 0 : 1;
}
