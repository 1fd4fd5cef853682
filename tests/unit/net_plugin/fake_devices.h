// The switch of the in-memory devices that the plugin's core finds in a test's process.
// Thread-safe.
#pragma once

#include "tests/fakes/rdma/fabric.h"

namespace rewire::net {

rdma::fake::Fabric& FakeFabric();

}  // namespace rewire::net
