# rewire_embed(TARGET FILE NAMESPACE NAME): compiles the text of a file of the current folder into the
# target, as the constant `extern const char NAME[]` of the namespace.
function(rewire_embed target file namespace name)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  file(CONFIGURE OUTPUT ${file}.cc @ONLY CONTENT [[
// The text of @file@; cmake/embed.cmake made this file.
namespace @namespace@ {
extern const char @name@[];
const char @name@[] = R"text(@text@)text";
}  // namespace @namespace@
]])
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${file}.cc)
endfunction()
