#include "reconfig/rdma/port.h"

namespace rewire::rdma {

uint32_t LinkSpeedMbps(uint8_t width_code, uint32_t speed_code) {
  uint32_t lanes = 0;
  switch (width_code) {
    case 1:
      lanes = 1;
      break;
    case 2:
      lanes = 4;
      break;
    case 4:
      lanes = 8;
      break;
    case 8:
      lanes = 12;
      break;
    case 16:
      lanes = 2;
      break;
    default:
      break;
  }
  uint32_t lane = 0;
  switch (speed_code) {
    case 1:
      lane = 2500;
      break;  // SDR
    case 2:
      lane = 5000;
      break;  // DDR
    case 4:   // QDR
    case 8:   // FDR10
      lane = 10000;
      break;
    case 16:
      lane = 14000;
      break;  // FDR
    case 32:
      lane = 25000;
      break;  // EDR
    case 64:
      lane = 50000;
      break;  // HDR
    case 128:
      lane = 100000;
      break;  // NDR
    case 256:
      lane = 200000;
      break;  // XDR
    default:
      break;
  }
  return lanes * lane;
}

}  // namespace rewire::rdma
