// The simulated GPU's driver, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "reconfig/base/cuda_driver.h"

namespace rewire::moe::fsep {

inline const CudaDriver& Driver() {
  std::string error;
  const CudaDriver* const driver = CudaDriver::Get(&error);
  if (driver == nullptr) ADD_FAILURE() << error;
  return *driver;
}

}  // namespace rewire::moe::fsep
