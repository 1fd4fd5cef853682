// Adds virtual time for the planning of a forward round: the balancer's copies begin no earlier
// than this time after the round begins. Wraps the driver of a process's only balancer.
#pragma once

#include <cstdint>

#include "bench/moe-exec/sim_device.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::bench {

// Wraps a function of the balancer's driver; call before Balancer::Open(). `device` must outlive
// the balancer.
void DelayCopies(const SimDevice* device, CudaDriver* driver);
// Sets the delay of the next round's copies, 0 for none; call before each round. Thread-safe.
void SetPlanningTime(uint64_t ns);

}  // namespace rewire::bench
