// Lets the planning of a forward round take virtual time: the copies of the balancer begin no
// earlier than so long after the round begins. It stands between the balancer and the driver, in
// one process, which has one balancer.
#pragma once

#include <cstdint>

#include "bench/moe-exec/sim_device.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::bench {

// Changes the balancer's driver. `device` must outlive the balancer.
void DelayCopies(const SimDevice* device, CudaDriver* driver);
// Before each round begins: the delay of its copies, 0 for none. Thread-safe.
void SetPlanningTime(uint64_t ns);

}  // namespace rewire::bench
