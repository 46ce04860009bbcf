# Shaders, for ASSAY_VULKAN=ON: GLSL to SPIR-V when the program is built, embedded in it. Only the headers of Vulkan are used; the loader is opened when the
# program runs.
find_package(Vulkan REQUIRED)  # headers alone: nothing of it is linked
find_program(ASSAY_GLSLC glslc)
if(NOT ASSAY_GLSLC)
  message(FATAL_ERROR "ASSAY_VULKAN needs glslc, the compiler of shaders (Debian's package is glslc); -DASSAY_GLSLC=... says where it is")
endif()

# assay_shaders(target INCLUDED headers... SHADERS files...)
#   Compiles each shader.comp in three kinds (num/num.glsl), and adds a source with the table that device/spirv.h declares. Without optimisation: what
#   may not be contracted is only marked when the program runs (uncontracted()), and drivers optimise anyway.
function(assay_shaders target)
  cmake_parse_arguments(ARG "" "" "INCLUDED;SHADERS" ${ARGN})
  set(arrays "")
  set(entries "")
  foreach(shader IN LISTS ARG_SHADERS)
    string(REPLACE "|" ";" parts "${shader}")  # "file|3": the file with ASSAY_OPERATION=3, called file_3
    list(GET parts 0 shader)
    get_filename_component(name ${shader} NAME_WE)
    set(of_all "")
    list(LENGTH parts n_parts)
    if(n_parts GREATER 1)
      list(GET parts 1 operation)
      set(of_all -DASSAY_OPERATION=${operation})
      string(APPEND name _${operation})
    endif()
    foreach(kind plain float64 integers)
      set(words ${CMAKE_CURRENT_BINARY_DIR}/${name}_${kind}.inc)
      string(TOUPPER ${kind} upper)
      set(defined ${of_all} -DASSAY_${upper})
      add_custom_command(OUTPUT ${words}
        COMMAND ${ASSAY_GLSLC} -O0 --target-env=vulkan1.2 ${defined} -I ${CMAKE_CURRENT_SOURCE_DIR} -mfmt=num -o ${words} ${CMAKE_CURRENT_SOURCE_DIR}/${shader}
        DEPENDS ${shader} ${ARG_INCLUDED} VERBATIM)
      list(APPEND outputs ${words})
      string(APPEND arrays "constexpr uint32_t ${name}_${kind}[] = {\n#include \"${words}\"\n};\n")
    endforeach()
    string(APPEND entries "    {\"${name}\", ${name}_plain, ${name}_float64, ${name}_integers},\n")
  endforeach()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/shader_table.cpp)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT "// Written by cmake/AssayVulkan.cmake.
#include \"assay/error.h\"
#include \"backend/vulkan/device/spirv.h\"

namespace assay::backend::vulkan {
namespace {

@arrays@
constexpr Shader kShaders[] = {
@entries@};

}  // namespace

std::span<const Shader> all_shaders() noexcept { return kShaders; }

const Shader& find_shader(std::string_view name) {
  for (const Shader& shader : kShaders) {
    if (shader.name == name) return shader;
  }
  throw Error(Errc::device, \"no shader is called \" + std::string(name));
}

}  // namespace assay::backend::vulkan
")
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS "${outputs}" SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${source})
endfunction()
