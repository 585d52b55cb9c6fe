#pragma once

#include "scheduler/schedules/schedule.h"

namespace stagecoach {

/// One function a schedule; each is described in the file of its name, docs/schedules.md has all.
Schedule single_schedule();
Schedule roundpipe_schedule();
Schedule gpipe_schedule();
Schedule one_f_one_b_schedule();
Schedule interleaved_schedule();
Schedule looped_bfs_schedule();
Schedule mobius_schedule();
Schedule zb_h1_schedule();
Schedule zb_h2_schedule();
Schedule zb_1p_schedule();
Schedule zb_2p_schedule();
Schedule zb_v_schedule();
Schedule v_half_schedule();
Schedule v_min_schedule();
Schedule dualpipe_schedule();
Schedule dualpipev_schedule();
Schedule pipedream_schedule();
Schedule pipedream_2bw_schedule();
Schedule paci_schedule();
Schedule slidedp_schedule();

}  // namespace stagecoach
