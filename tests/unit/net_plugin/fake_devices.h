// The switch of the devices in memory that the plugin's core finds in a test's process.
#pragma once

#include "tests/fakes/rdma/fabric.h"

namespace rewire::net {

rdma::fake::Fabric& FakeFabric();

}  // namespace rewire::net
