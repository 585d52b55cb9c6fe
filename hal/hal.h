#pragma once

// The hardware abstraction layer: what the scheduler knows of a device. The smallest program:
//
//   BackendRegistry registry = built_in_backends();           // backends/register_backends.h
//   auto devices = registry.open_devices("cpu:2");            // Result<vector<unique_ptr<Device>>>
//   auto stream = devices.value()[0]->create_stream({"compute"});
//   auto tensor = devices.value()[0]->allocate(1 << 20, "weights");
//   stream.value()->fill({tensor.buffer->view(), 0, 4, "zero"});
//   stream.value()->synchronize();
//
// docs/hal_contract.md holds the clauses on ordering, visibility, lifetime, threads and errors.

#include "hal/backend.h"
#include "hal/backend_registry.h"
#include "hal/buffer.h"
#include "hal/collective.h"
#include "hal/copy.h"
#include "hal/device.h"
#include "hal/event.h"
#include "hal/executable.h"
#include "hal/host_worker.h"
#include "hal/op_call.h"
#include "hal/ops.h"
#include "hal/stream.h"
#include "hal/tensor.h"
#include "hal/timeline.h"
#include "hal/timepoint.h"
#include "hal/topology.h"
