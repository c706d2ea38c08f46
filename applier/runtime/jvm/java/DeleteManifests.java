package applier;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestReader;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;

/**
 * Knows in which manifests the delete files of a table are. Iceberg opens every delete manifest of a table to take some
 * files out, unless each of these says where it was read: so a commit would cost more with each commit before it.
 *
 * Manifests never change, so what was read of one stays true as long as the table lists it.
 */
public class DeleteManifests {
  /** Manifests that Iceberg may as well open. */
  private static final int FEW = 4;

  /** Delete files of one table that are remembered at most, at half a kilobyte each. */
  private static final int MOST = 5000;

  private static final Map TABLES = Collections.synchronizedMap(new WeakHashMap());

  private Map manifests = new HashMap();

  private DeleteManifests() {}

  /** The same delete files, as they were read in the manifests of a snapshot; as they are if that does not pay. */
  public static List found(Table table, Snapshot head, List files) throws Exception {
    List listed = head.deleteManifests(table.io());
    if (files.isEmpty() || listed.size() <= FEW || count(listed) > MOST) {
      TABLES.remove(table);
      return files;
    }
    DeleteManifests known = (DeleteManifests) TABLES.get(table);
    if (known == null) {
      known = new DeleteManifests();
      TABLES.put(table, known);
    }
    known.read(table, listed);
    List result = new ArrayList();
    for (Object file : files) {
      DeleteFile found = known.find(key((DeleteFile) file));
      if (found == null) {
        return files;
      }
      result.add(found);
    }
    return result;
  }

  private static long count(List listed) {
    long count = 0;
    for (Object each : listed) {
      ManifestFile manifest = (ManifestFile) each;
      if (manifest.addedFilesCount() == null || manifest.existingFilesCount() == null) {
        return Long.MAX_VALUE;
      }
      count += manifest.addedFilesCount().intValue() + manifest.existingFilesCount().intValue();
    }
    return count;
  }

  /** Read the manifests that are new, and forget those that are gone. */
  private void read(Table table, List listed) throws Exception {
    Map kept = new HashMap();
    for (Object each : listed) {
      ManifestFile manifest = (ManifestFile) each;
      Object known = manifests.get(manifest.path());
      kept.put(manifest.path(), known == null ? files(table, manifest) : known);
    }
    manifests = kept;
  }

  private static Map files(Table table, ManifestFile manifest) throws Exception {
    Map files = new HashMap();
    ManifestReader reader = ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs());
    try {
      Iterator each = reader.iterator();
      while (each.hasNext()) {
        DeleteFile file = (DeleteFile) ((DeleteFile) each.next()).copyWithoutStats();
        files.put(key(file), file);
      }
    } finally {
      reader.close();
    }
    return files;
  }

  private DeleteFile find(String key) {
    for (Object files : manifests.values()) {
      DeleteFile file = (DeleteFile) ((Map) files).get(key);
      if (file != null) {
        return file;
      }
    }
    return null;
  }

  /** All deletion vectors of a commit are in one file. */
  private static String key(DeleteFile file) {
    return file.contentOffset() + " " + file.location();
  }
}
