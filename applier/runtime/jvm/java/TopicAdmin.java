package applier;

import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;

/**
 * Answers questions about topics in one call each (consume/kafka/admin.py): through the gateway they would be a dozen a
 * partition. An answer has a line for each topic or partition, with spaces between its words; names of topics have none.
 *
 * Janino compiles it, which knows generics only as casts.
 */
public class TopicAdmin {
  private final AdminClient admin;
  private KafkaFuture shown;

  public TopicAdmin(Properties options) {
    admin = AdminClient.create(options);
  }

  /** Names of the topics that match a regular expression as a whole. */
  public String matching(String pattern) throws Exception {
    Pattern compiled = Pattern.compile(pattern);
    StringBuilder found = new StringBuilder();
    for (Object name : (Collection) admin.listTopics().names().get()) {
      if (compiled.matcher((String) name).matches()) {
        found.append(name).append('\n');
      }
    }
    return found.toString();
  }

  /** Topic and id of each topic. */
  public String ids(Collection topics) throws Exception {
    StringBuilder found = new StringBuilder();
    for (Object topic : described(topics)) {
      TopicDescription description = (TopicDescription) topic;
      found.append(description.name()).append(' ').append(description.topicId()).append('\n');
    }
    return found.toString();
  }

  /** Topic, partition, first offset kept and end offset of each partition. */
  public String bounds(Collection topics) throws Exception {
    return offsets(topics, OffsetSpec.earliest());
  }

  /** Topic, partition, first offset of a time in milliseconds or later (-1: none) and end offset of each partition. */
  public String since(Collection topics, long milliseconds) throws Exception {
    return offsets(topics, OffsetSpec.forTimestamp(milliseconds));
  }

  /**
   * Makes the offsets of a consumer group those of these lines, of topic, partition and offset; raises what the call
   * before has met, and does nothing while the brokers have not answered that one.
   */
  public void show(String group, String lines) throws Exception {
    if (!isShown()) {
      return;
    }
    KafkaFuture last = shown;
    Map offsets = new HashMap();
    for (Object line : Arrays.asList(lines.split("\n"))) {
      String[] words = ((String) line).split(" ");
      if (words.length == 3) {
        TopicPartition place = new TopicPartition(words[0], Integer.parseInt(words[1]));
        offsets.put(place, new OffsetAndMetadata(Long.parseLong(words[2])));
      }
    }
    shown = admin.alterConsumerGroupOffsets(group, offsets).all();
    if (last != null) {
      last.get();
    }
  }

  /** Whether the brokers have answered the last call of `show`. */
  public boolean isShown() {
    return shown == null || shown.isDone();
  }

  public void close(long milliseconds) {
    admin.close(java.time.Duration.ofMillis(milliseconds));
  }

  private String offsets(Collection topics, OffsetSpec first) throws Exception {
    Map firsts = new HashMap();
    Map lasts = new HashMap();
    for (Object topic : described(topics)) {
      TopicDescription description = (TopicDescription) topic;
      for (Object info : description.partitions()) {
        TopicPartition place = new TopicPartition(description.name(), ((TopicPartitionInfo) info).partition());
        firsts.put(place, first);
        lasts.put(place, OffsetSpec.latest());
      }
    }
    ListOffsetsResult starts = admin.listOffsets(firsts);
    ListOffsetsResult ends = admin.listOffsets(lasts);
    StringBuilder found = new StringBuilder();
    for (Object key : firsts.keySet()) {
      TopicPartition place = (TopicPartition) key;
      found.append(place.topic()).append(' ').append(place.partition()).append(' ');
      found.append(offset(starts, place)).append(' ').append(offset(ends, place)).append('\n');
    }
    return found.toString();
  }

  private Collection described(Collection topics) throws Exception {
    return new TreeMap((Map) admin.describeTopics(topics).allTopicNames().get()).values();
  }

  private static long offset(ListOffsetsResult asked, TopicPartition place) throws Exception {
    return ((ListOffsetsResult.ListOffsetsResultInfo) asked.partitionResult(place).get()).offset();
  }
}
