#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "scheduler/shared_rate.h"

namespace stagecoach {

/// A copy engine: one copy at a time, in the order in which they become ready. Urgent copies are
/// asked for as they come; bulk ones wait in order, each ready when the one before it is through.
/// Bulk may travel in chunks, each ready when the one before it is through, so that urgent copies
/// that are waiting then go first.
class CopyEngine {
 public:
  struct Bulk {
    double ready_ns = 0;
    double length_ns = 0;
    int slot = 0;   ///< whose it is: the device's slots, counted
    int layer = 0;  ///< what it carries, as whoever is told knows it
  };

  /// What its copies pass through beside the link: those limits, at `bytes_per_ns` alone.
  void share(std::vector<SharedRate*> limits, double bytes_per_ns) {
    limits_ = std::move(limits);
    bytes_per_ns_ = bytes_per_ns;
  }

  /// Bulk travels in even pieces of at most this time; 0: whole.
  void cut_bulk(double chunk_ns) { chunk_ns_ = chunk_ns; }

  /// Runs an urgent copy, or several that follow each other on one stream, which keeps the engine,
  /// after the bulk that was ready before it; returns its end.
  template <typename Done>
  double run_urgent(double ready_ns, double length_ns, Done done) {
    // A stream whose next copy is ready when one ends keeps the engine.
    bool keeps_engine = ready_ns <= urgent_end_ns_ && free_ns_ == urgent_end_ns_;
    urgent_end_ns_ = std::max(ready_ns, urgent_end_ns_);
    if (length_ns <= 0) return urgent_end_ns_;
    while (!keeps_engine && has_bulk() && ready_of(bulk_[next_]) <= urgent_end_ns_) {
      if (keeps_going_beyond(urgent_end_ns_)) break;
      run_bulk(done);
    }
    return urgent_end_ns_ = free_ns_ = end_ns(std::max(free_ns_, urgent_end_ns_), length_ns);
  }
  /// Adds bulk in copies of these shares; empty: in one.
  void add_bulk(const Bulk& bulk, const std::vector<double>& shares) {
    bulk_.push_back(bulk);
    if (shares.empty()) return;
    bulk_.back().length_ns *= shares.front();
    for (size_t copy = 1; copy < shares.size(); ++copy) {
      bulk_.push_back(bulk);
      bulk_.back().length_ns *= shares[copy];
    }
  }
  /// Runs one copy of `bulk` among the urgent ones.
  template <typename Done>
  void run_in_order(const Bulk& bulk, Done done) {
    double end = run_urgent(bulk.ready_ns, bulk.length_ns, done);
    end_slot(bulk.slot, end);
    done(bulk.layer, end);
  }
  /// Runs what waits of slots up to `slot`; returns the end of the last of `slot`.
  template <typename Done>
  double finish_bulk(int slot, Done done) {
    while (has_bulk() && bulk_[next_].slot <= slot) run_bulk(done);
    return slot < static_cast<int>(slot_end_ns_.size()) ? slot_end_ns_[slot] : 0;
  }

 private:
  bool has_bulk() const { return next_ < bulk_.size(); }
  double ready_of(const Bulk& bulk) const { return std::max(bulk.ready_ns, bulk_end_ns_); }
  double end_ns(double start_ns, double length_ns) {
    return end_of_transfer_ns(limits_, start_ns, length_ns, length_ns * bytes_per_ns_);
  }
  void end_slot(int slot, double at_ns) {
    if (slot_end_ns_.size() <= static_cast<size_t>(slot)) slot_end_ns_.resize(slot + 1, 0);
    slot_end_ns_[slot] = at_ns;
  }
  /// Whether pieces are left of the next bulk copy when those have run that are ready by that time,
  /// as the first one is: each is ready when the one before it is through.
  bool keeps_going_beyond(double time_ns) {
    Bulk& bulk = bulk_[next_];
    double start = std::max(ready_of(bulk), free_ns_);
    if (chunk_ns_ <= 0 || bulk.length_ns <= 0) return false;
    // Shares of a layer are rounded: what is meant to be one chunk is.
    constexpr double kRounding = 1e-6;
    double pieces = std::max(1.0, std::ceil(bulk.length_ns / chunk_ns_ - kRounding));
    double piece_ns = bulk.length_ns / pieces;
    double begun = 1 + std::floor(std::max(0.0, time_ns - start) / piece_ns);
    if (begun >= pieces) return false;
    bulk.length_ns -= begun * piece_ns;
    bulk.ready_ns = free_ns_ = end_ns(start, begun * piece_ns);
    return true;
  }
  template <typename Done>
  void run_bulk(Done done) {
    const Bulk& bulk = bulk_[next_++];
    bulk_end_ns_ = ready_of(bulk);
    if (bulk.length_ns > 0) {
      bulk_end_ns_ = end_ns(std::max(bulk_end_ns_, free_ns_), bulk.length_ns);
    }
    if (bulk.length_ns > 0) free_ns_ = bulk_end_ns_;
    end_slot(bulk.slot, bulk_end_ns_);
    done(bulk.layer, bulk_end_ns_);
    if (has_bulk()) return;
    bulk_.clear();
    next_ = 0;
  }

  std::vector<SharedRate*> limits_;
  double bytes_per_ns_ = 0, chunk_ns_ = 0;
  double free_ns_ = 0, bulk_end_ns_ = 0, urgent_end_ns_ = 0;
  std::vector<Bulk> bulk_;  ///< from `next_` on
  size_t next_ = 0;
  std::vector<double> slot_end_ns_;
};

}  // namespace stagecoach
