// Holds the room until its first source lands.
namespace assay { int placeholder_base() { return 0; } }
