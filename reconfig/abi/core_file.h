// The name under which Rewire's own code opens librewire.so: the SONAME, so that a process loads
// one copy. A wheel has the library under this name only.
#pragma once

namespace rewire {

inline constexpr char kCoreFile[] = "librewire.so.0.1";

}  // namespace rewire
