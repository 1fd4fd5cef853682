#include "net_plugin/socket/frame.h"

#include "absl/strings/str_cat.h"

namespace rewire::net {

std::string FrameText(const FrameHeader& h) {
  return absl::StrCat("kind=0x", absl::Hex(static_cast<uint32_t>(h.kind)), " use=", h.use,
                      " sequence=", h.sequence, " total=", h.total, " offset=", h.offset,
                      " bytes=", h.bytes);
}

}  // namespace rewire::net
