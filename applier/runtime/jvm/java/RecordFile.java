package applier;

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.common.TopicPartition;

/**
 * Writes what a consumer polls to a file, from which Python reads it: a block for each partition of a poll. No record is
 * known to Python: its garbage would keep all of them in memory for as long as a window is read.
 */
public class RecordFile extends RecordColumns {
  private final FileChannel file;
  private final ByteBuffer buffer;
  private long end = 0;

  public RecordFile(String path) throws IOException {
    this(new FileOutputStream(path).getChannel(), ByteBuffer.allocateDirect(1 << 20));
  }

  private RecordFile(FileChannel file, ByteBuffer buffer) {
    super(buffer);
    this.file = file;
    this.buffer = buffer;
  }

  /** Begin anew, in the place that the file has. */
  public void reset() {
    end = 0;
  }

  public void close() throws IOException {
    file.close();
  }

  /**
   * Wait for what comes next, and append it. The answer has a line for each partition: its head, and the offset to read
   * next.
   *
   * @throws OutOfMemoryError the values have more bytes than `most`; nothing of them is appended, and they are lost
   */
  public String poll(Consumer consumer, long milliseconds, long most) throws IOException {
    ConsumerRecords polled = consumer.poll(Duration.ofMillis(milliseconds));
    long bytes = 0;
    StringBuilder found = new StringBuilder();
    for (Object each : polled.partitions()) {
      TopicPartition place = (TopicPartition) each;
      List records = polled.records(place);
      for (Object record : records) {
        bytes += Math.max(0, ((ConsumerRecord) record).serializedValueSize());
      }
      found.append(head(place, records)).append(' ').append(consumer.position(place)).append('\n');
    }
    if (bytes > most) {
      throw new OutOfMemoryError(bytes + " bytes of messages came at once");
    }
    file.position(end);
    buffer.clear();
    for (Object each : polled.partitions()) {
      append(polled.records((TopicPartition) each));
    }
    flush();
    end = file.position();
    return found.toString();
  }

  protected void flush() throws IOException {
    buffer.flip();
    while (buffer.hasRemaining()) {
      file.write(buffer);
    }
    buffer.clear();
  }
}
