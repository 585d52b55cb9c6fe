#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/task_pool.h"
#include "hal/device.h"
#include "tools/bandwidth/common_window.h"
#include "tools/bandwidth/measurement.h"
#include "tools/bandwidth/peer_proof.h"

namespace stagecoach {

/// How bytes get from one device to another, and, to load links meanwhile, from and to the host.
enum class PeerRoute : uint8_t {
  kDirect,  ///< peer to peer, where the driver lets it
  kStaged,  ///< by way of pinned host memory, both hops at the same time
  kUp,      ///< from the host to the target
  kDown     ///< from the source to the host
};

/// "direct", "staged", "up", "down".
const char* peer_route_name(PeerRoute route);

/// Where copies begin and end.
struct PeerEnds {
  Device* source = nullptr;  ///< null: the host
  Device* target = nullptr;  ///< null: the host
  PeerRoute route = PeerRoute::kDirect;
  std::shared_ptr<PeerProof> proof;  ///< of direct copies, which must have passed it
};

/// A stream of copies round a ring of four chunks, and the memory that they move. Not for simulated
/// devices. Errors: the devices'; deadline exceeded. Thread rule: one thread.
class PeerFlow {
 public:
  /// `chunk_bytes` is a multiple of 4. Devices and pool must outlive it. Takes nothing yet.
  PeerFlow(PeerEnds ends, ByteCount chunk_bytes, uint64_t seed, TaskPool& pool);

  /// "cuda:0 to cuda:1", "cuda:0 down".
  std::string name() const;
  ByteCount chunk_bytes() const { return chunk_bytes_; }

  /// Gets memory and streams. Where the route is direct: proves it first; see PeerProof::run.
  Status prepare();
  /// Makes room for the events of a batch of `chunks`.
  Status begin(int64_t chunks);
  int64_t chunks() const { return chunks_; }
  int64_t issued() const { return issued_; }
  /// Issues the next chunk.
  Status issue();
  /// Waits for all that were issued.
  Status await(int64_t deadline_ns);
  /// Gives up what is queued.
  void abandon(const Status& status);
  /// When each chunk of the batch arrived.
  Result<FlowMarks> marks() const;
  /// Overwrites where copies go to.
  Status poison();
  /// Compares what the last batch wrote, by way of the target's own download.
  Result<DataCheck> check(int64_t deadline_ns);

 private:
  Device& issuer() const { return ends_.source != nullptr ? *ends_.source : *ends_.target; }
  Stream& last_stream() const;
  Status get_memory();
  Status issue_staged(ByteCount offset);
  BufferHandle& final_buffer() { return ends_.target != nullptr ? received_ : landing_; }

  const PeerEnds ends_;
  const ByteCount chunk_bytes_;
  const uint64_t seed_;
  TaskPool& pool_;
  std::unique_ptr<Stream> source_stream_, target_stream_;
  BufferHandle pattern_, sent_, staging_, received_, landing_;
  std::vector<Timepoint> uploads_;  ///< of staged chunks
  std::vector<std::unique_ptr<Event>> events_;
  int64_t chunks_ = 0, issued_ = 0;  ///< of the batch
};

}  // namespace stagecoach
